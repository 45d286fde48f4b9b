"""The teacher of a run: named in the settings, or given to `fit` as an object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from trainonce.errors import SettingError
from trainonce.teaching.lessons import Lessons, checksum_of
from trainonce.teaching.teacher import TEMPERATURE, WEIGHT, Teacher, bring, find_teacher
from trainonce.training.origin import Origin
from trainonce.training.settings import Settings

_DEFAULTS = {"teacher_weight": WEIGHT, "teacher_temperature": TEMPERATURE}


def told_teacher(settings: Settings, given: Any) -> tuple[Settings, Teacher | None]:
    """The settings with the teacher that `fit` was given, as far as settings can name it; else the teacher.

    SettingError for what is no teacher.
    """
    found = find_teacher(given)
    if found is None:
        return (replace(settings, teacher=False) if given is False else settings), None
    if found is given:
        settings = replace(settings, **_parts(settings, found))
    else:
        found = replace(found, weight=settings.teacher_weight, temperature=settings.teacher_temperature)
    if found.model is None:
        # Refused here if the run starts from scratch.
        return replace(settings, teacher=True), found if found.loss is not None else None
    if settings.teacher:
        raise SettingError("the settings have a teacher, and teacher is given, too. Leave one of them out.")
    return settings, found


def _parts(settings: Settings, teacher: Teacher) -> dict[str, float]:
    """A teacher's weight and temperature; SettingError if the settings have been given others."""
    own = {"teacher_weight": teacher.weight, "teacher_temperature": teacher.temperature}
    for name, value in own.items():
        if getattr(settings, name) not in (_DEFAULTS[name], value):
            raise SettingError(
                f"{name} is {getattr(settings, name):g} in the settings, and {value:g} in the Teacher. Set "
                "it in one place."
            )
    return own


def described_teacher(teacher: Teacher) -> dict[str, Any]:
    """A teacher that was given as an object, as `config.yaml` records it, to tell it from another."""
    found: dict[str, Any] = {"teacher": True}
    if teacher.model is not None:
        found = {"teacher": type(teacher.model).__name__, "teacher_sha256": checksum_of(teacher.model)}
    if teacher.loss is not None:
        found["teacher_loss"] = getattr(teacher.loss, "__name__", type(teacher.loss).__name__)
    return found


def check_start(settings: Settings, origin: Origin) -> None:
    """Raise SettingError if the model is to teach itself before it knows the classes."""
    if settings.teacher and origin.new_head is not None:
        raise SettingError(
            "teacher=True is a frozen copy of the initial model, whose last layer is new and untrained "
            f"({origin.new_head}). Train it first with keep_flops=1 and start from those weights, or leave "
            "out teacher."
        )


def lessons_for(model: nn.Module, settings: Settings, given: Teacher | None) -> Lessons | None:
    """What the model is taught in this run; None without a teacher."""
    teacher = given
    if teacher is None and settings.teacher:
        teacher = Teacher(weight=settings.teacher_weight, temperature=settings.teacher_temperature)
    if teacher is None:
        return None
    bring(teacher, model)
    return Lessons(teacher, model)


def teacher_line(lessons: Lessons) -> str:
    """Such as `a frozen copy of the initial model, weight 0.5, temperature 2`."""
    teacher = lessons.teacher
    who = "a frozen copy of the initial model" if teacher.model is None else type(teacher.model).__name__
    how = f"temperature {teacher.temperature:g}" if teacher.loss is None else "with a loss of your own"
    return f"{who}, weight {teacher.weight:g}, {how}"
