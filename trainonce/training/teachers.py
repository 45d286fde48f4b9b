"""The teacher of a run: named in the settings, or given to `fit` as an object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from trainonce.errors import SettingError
from trainonce.teaching.lessons import Lessons
from trainonce.teaching.teacher import Teacher, find_teacher
from trainonce.training.settings import Settings


def told_teacher(settings: Settings, given: Any) -> tuple[Settings, Teacher | None]:
    """The settings with the teacher that `fit` was given, as far as settings can name it; else the teacher.

    SettingError for what is no teacher.
    """
    found = find_teacher(given)
    if found is None:
        return (replace(settings, teacher=False) if given is False else settings), None
    if found.model is None:
        # Refused here if the run starts from scratch.
        settings = replace(
            settings, teacher=True, teacher_weight=found.weight, teacher_temperature=found.temperature
        )
        return settings, found if found.loss is not None else None
    if settings.teacher:
        raise SettingError("the settings have a teacher, and teacher is given, too. Leave one of them out.")
    return settings, found


def described_teacher(teacher: Teacher) -> dict[str, Any]:
    """A teacher that was given as an object, as `config.yaml` records it: a model by its class."""
    return {
        "teacher": True if teacher.model is None else type(teacher.model).__name__,
        "teacher_weight": teacher.weight,
        "teacher_temperature": teacher.temperature,
    }


def lessons_for(model: nn.Module, settings: Settings, given: Teacher | None) -> Lessons | None:
    """What the model is taught in this run; None without a teacher."""
    teacher = given
    if teacher is None and settings.teacher:
        teacher = Teacher(weight=settings.teacher_weight, temperature=settings.teacher_temperature)
    if teacher is None:
        return None
    if teacher.model is not None:
        teacher.model.to(next(model.parameters()).device)
    return Lessons(teacher, model)


def teacher_line(lessons: Lessons) -> str:
    """Such as `itself as it is at the start, weight 0.5, temperature 2`."""
    teacher = lessons.teacher
    who = "a frozen copy of the initial model" if teacher.model is None else type(teacher.model).__name__
    how = f"temperature {teacher.temperature:g}" if teacher.loss is None else "with a loss of your own"
    return f"{who}, weight {teacher.weight:g}, {how}"
