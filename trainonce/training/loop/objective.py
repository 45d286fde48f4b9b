"""The loss of a batch: inputs and targets moved to the device, mixed if asked, in the run's precision.

With a teacher, the distance to its outputs is part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainonce.errors import SettingError
from trainonce.execution.forward import call_model
from trainonce.execution.logits import class_axis, find_logits
from trainonce.teaching.lessons import Lessons
from trainonce.training.loop.evaluation import CrossEntropy, Loss
from trainonce.training.loop.mixing import Mixing
from trainonce.training.loop.processes import moved
from trainonce.training.loop.surroundings import Surroundings


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """What a run minimizes."""

    loss: Loss
    where: Surroundings
    mixing: Mixing | None = None
    lessons: Lessons | None = None

    def __call__(self, model: Any, inputs: Any, targets: Any, *, seed: int) -> Tensor:
        """The mean loss of the model on a batch; `seed` decides how it is mixed."""
        inputs = moved(inputs, self.where.device, self.where.layout)
        targets = moved(targets, self.where.device)
        if self.mixing is not None:
            inputs, targets = self.mixing(inputs, targets, seed)
        with self.where.precision.autocast():
            outputs = call_model(model, inputs)
            value = self.loss(outputs, targets)
            if not isinstance(value, Tensor) or value.numel() != 1:
                found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise SettingError(f"loss must return a scalar, the mean over the batch, got {found}.")
            return (
                value if self.lessons is None else self._taught(self.lessons, value, inputs, outputs, targets)
            )

    def _taught(self, lessons: Lessons, value: Tensor, inputs: Any, outputs: Any, targets: Any) -> Tensor:
        axis = class_axis(find_logits(outputs), targets)
        if axis is None and lessons.teacher.loss is None and not isinstance(self.loss, CrossEntropy):
            raise SettingError(
                "the targets are not classes, so outputs can't be compared by class. "
                "Pass a loss between two outputs: "
                "teacher=trainonce.Teacher(loss=torch.nn.functional.mse_loss)."
            )
        kwargs = inputs if isinstance(inputs, Mapping) else {}
        args = () if kwargs else tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        return lessons.taught(value, lessons.distance(outputs, args, kwargs, axis=axis))
