"""The loss of a batch: inputs and targets moved to the device, mixed if asked, in the run's precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainonce.errors import SettingError
from trainonce.execution.forward import call_model
from trainonce.training.loop.evaluation import Loss
from trainonce.training.loop.mixing import Mixing
from trainonce.training.loop.processes import moved
from trainonce.training.loop.surroundings import Surroundings


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """What a run minimizes."""

    loss: Loss
    mixing: Mixing | None
    where: Surroundings

    def __call__(self, model: Any, inputs: Any, targets: Any, *, seed: int) -> Tensor:
        """The mean loss of the model on a batch; `seed` decides how it is mixed."""
        inputs = moved(inputs, self.where.device, self.where.layout)
        targets = moved(targets, self.where.device)
        if self.mixing is not None:
            inputs, targets = self.mixing(inputs, targets, seed)
        with self.where.precision.autocast():
            value = self.loss(call_model(model, inputs), targets)
        if not isinstance(value, Tensor) or value.numel() != 1:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise SettingError(f"loss must return a scalar, the mean over the batch, got {found}.")
        return value
