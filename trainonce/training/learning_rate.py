"""The learning rate of a step: takes settings and a step, gives a number, and sets it in every parameter group."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trainonce.training.limits import BadSetting
from trainonce.training.settings import Settings


def learning_rate(settings: Settings, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0.

    While warming up  lr * (step + 1) / (warm-up steps + 1),  then, with t from 0 to 1 over the rest of the run,

        cosine    min_lr + (lr - min_lr) * (1 + cos(pi * t)) / 2
        step      lr * decay_rate ^ (how many of decay_epochs are over)
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
    """The rates that an optimizer was made with; each group keeps its own, scaled by the schedule."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        try:
            self.own = [float(group["lr"]) for group in optimizer.param_groups]
        except (KeyError, TypeError):
            raise BadSetting(
                f"this {type(optimizer).__name__} has no learning rate to schedule. Give each of its parameter groups a number as 'lr'."
            ) from None
        if not max(self.own) > 0:
            raise BadSetting(f"the optimizer's learning rates are {shown(self.own)}: nothing would be learned. Give a rate above 0.")

    @property
    def highest(self) -> float:
        """What the schedule starts from."""
        return max(self.own)

    @property
    def now(self) -> float:
        """The highest of the rates that are set."""
        return max(float(group["lr"]) for group in self._optimizer.param_groups)

    def set(self, rate: float) -> None:
        """Bring every group to where the schedule has `rate` for the highest; ratios between groups stay."""
        for group, own in zip(self._optimizer.param_groups, self.own, strict=True):
            _set_rate(group, rate if own == self.highest else rate * (own / self.highest))

    def put_back(self) -> None:
        """Give every group its own rate again: an optimizer may train once more."""
        for group, own in zip(self._optimizer.param_groups, self.own, strict=True):
            _set_rate(group, own)


def shown(rates: Sequence[float]) -> str:
    """Rates in words, each once."""
    return ", ".join(f"{rate:g}" for rate in dict.fromkeys(rates))


def _set_rate(group: dict, rate: float) -> None:
    # Captured graphs read the rate from a tensor.
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
