"""`Teacher`: the model to learn from, its share of the loss, and the distance between two outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trainonce.errors import SettingError
from trainonce.messages.limits import Limits, check_value
from trainonce.messages.plain_text import shorten

WEIGHT, TEMPERATURE = 0.5, 2.0
WEIGHT_LIMITS = Limits(kind=float, above=0, at_most=1)
TEMPERATURE_LIMITS = Limits(kind=float, above=0, at_most=1000)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Teacher:
    """Distillation: a trained model to also learn from. Pass it as `teacher=` to `attach` or `fit`.

        (1 - weight) * loss + weight * temperature^2 * KL(teacher's classes || the model's)

    with both outputs divided by the temperature (Hinton et al., 2015). `teacher=True` is `Teacher()`, and
    `teacher=big` is `Teacher(model=big)`.

    Example: `teacher=trainonce.Teacher(weight=0.7, loss=torch.nn.functional.mse_loss)`
    """

    model: nn.Module | None = None
    """The teacher, called with the same inputs. None: a frozen copy of the model as it is when the run
    starts, whose weights are then part of the checkpoints."""

    weight: float = WEIGHT
    """Its share of the loss, above 0; with 1, the targets are ignored."""

    temperature: float = TEMPERATURE
    """Softmax temperature: the higher, the more the less likely classes count."""

    loss: Callable[[Any, Any], Tensor] | None = None
    """Replaces KL where outputs aren't classes: the mean distance of the model's output to the teacher's."""

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, nn.Module):
            raise SettingError(
                f"a teacher's model must be an nn.Module, got {shorten(self.model)}. Pass "
                "a trained model, or teacher=True for a frozen copy of this model."
            )
        check_value("a teacher's weight", self.weight, WEIGHT_LIMITS)
        check_value("a teacher's temperature", self.temperature, TEMPERATURE_LIMITS)
        if self.loss is not None and not callable(self.loss):
            raise SettingError(
                "a teacher's loss must be a function of the model's output and the teacher's, got "
                f"{shorten(self.loss)}."
            )


def bring(teacher: Teacher, student: nn.Module) -> None:
    """Move a teacher to the device of the model, for those who place the model themselves."""
    device = next(student.parameters()).device
    if (model := teacher.model) is not None and not any(part.is_meta for part in model.parameters()):
        model.to(device)


def find_teacher(given: Any) -> Teacher | None:
    """What `teacher=` means; SettingError for anything but True, False, None, a module and a Teacher."""
    if given is None or given is False:
        return None
    if given is True:
        return Teacher()
    if isinstance(given, Teacher):
        return given
    if isinstance(given, type):
        raise SettingError(f"teacher is the class {given.__name__}. Pass an instance: {given.__name__}(...).")
    if isinstance(given, nn.Module):
        return Teacher(model=given)
    raise SettingError(
        f"teacher must be True, a trained nn.Module or a trainonce.Teacher, got {shorten(given)}."
    )
