"""The learning rate schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trainonce.errors import SettingError
from trainonce.training.settings import Settings


def learning_rate(settings: Settings, step: int, steps_per_epoch: int) -> float:
    """The learning rate at a step, counted from 0.

    During warmup  lr * (step + 1) / (warmup steps + 1),  then, with t from 0 to 1 over the rest of the run,

        cosine    min_lr + (lr - min_lr) * (1 + cos(pi * t)) / 2
        step      lr * decay_rate ^ (number of decay_epochs passed)
    """
    warmup_steps = round(settings.warmup_epochs * steps_per_epoch)
    if step < warmup_steps:
        return settings.lr * (step + 1) / (warmup_steps + 1)
    if settings.sched == "constant":
        return settings.lr
    if settings.sched == "step":
        num_over = sum(step >= round(epoch * steps_per_epoch) for epoch in settings.decay_epochs)
        return settings.lr * settings.decay_rate**num_over
    share = (step - warmup_steps) / max(1, settings.epochs * steps_per_epoch - warmup_steps)
    return settings.min_lr + (settings.lr - settings.min_lr) * (1 + math.cos(math.pi * share)) / 2


class Rates:
    """The learning rates of an optimizer's parameter groups; the schedule scales all of them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        try:
            self.own = [float(group["lr"]) for group in optimizer.param_groups]
        except (KeyError, TypeError):
            raise SettingError(
                f"this {type(optimizer).__name__} has no learning rate to schedule. Give each of its "
                "parameter groups a number as 'lr'."
            ) from None
        if not max(self.own) > 0:
            raise SettingError(f"the optimizer's learning rate is {shown(self.own)}. Use one above 0.")

    @property
    def highest(self) -> float:
        """The largest of the original rates, which the schedule is for."""
        return max(self.own)

    @property
    def now(self) -> float:
        """The largest of the current rates."""
        return max(float(group["lr"]) for group in self._optimizer.param_groups)

    @property
    def has_scheduler(self) -> bool:
        """Whether a scheduler of torch was made for the optimizer: it leaves its mark in every group."""
        return any("initial_lr" in group for group in self._optimizer.param_groups)

    def set(self, rate: float) -> None:
        """Set the largest rate to `rate` and scale the others alike."""
        for group, own in zip(self._optimizer.param_groups, self.own, strict=True):
            _set_rate(group, rate if own == self.highest else rate * (own / self.highest))

    def put_back(self) -> None:
        """Restore the original rates, so that the optimizer can be used again."""
        for group, own in zip(self._optimizer.param_groups, self.own, strict=True):
            _set_rate(group, own)


def shown(rates: Sequence[float]) -> str:
    """The distinct rates, such as `0.1, 0.01`."""
    return ", ".join(f"{rate:g}" for rate in dict.fromkeys(rates))


def _set_rate(group: dict, rate: float) -> None:
    # CUDA graphs read the rate from a tensor.
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
