"""The norm of the gradient mapping: the paper's measure of convergence, taken at each optimizer step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GradientMapping:
    """Measures the norm of the gradient mapping at each step of an optimizer.

        P_t = (z_t - z_{t+1}) / eta_t

    where z_{t+1} is the point after the optimizer's step and the projection. For the paper's algorithm, its
    mean over a run falls as O(T^-1/4). Create it after `attach`, so that it sees the projection. It holds a
    copy of the parameters during each step.

    Example: `watch = GradientMapping(optimizer)` with `from trainonce.pruning.convergence import
    GradientMapping`; then `watch.norm` after each step and `watch.mean` at the end.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._before: list[tuple[Tensor, Tensor, float]] = []
        self._total = 0.0
        self.num_steps = 0
        self.norm: float | None = None
        """The norm at the last step; None before the first."""
        self._hooks: list[Any] = [
            optimizer.register_step_pre_hook(lambda *_: self._remember()),
            optimizer.register_step_post_hook(lambda *_: self._measure()),
        ]

    @property
    def mean(self) -> float:
        """The average norm so far."""
        return self._total / max(1, self.num_steps)

    def stop(self) -> None:
        """Stop measuring: remove the hooks from the optimizer."""
        for hook in self._hooks:
            hook.remove()

    def _remember(self) -> None:
        self._before = [
            (parameter, parameter.detach().clone(), float(group.get("lr", 1.0)))
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]

    def _measure(self) -> None:
        squares = [
            ((before - parameter.detach()) / rate).double().square().sum()
            for parameter, before, rate in self._before
            if rate > 0 and before.shape == parameter.shape
        ]
        self._before = []
        if squares:
            self.norm = float(torch.stack([square.cpu() for square in squares]).sum().sqrt())
            self._total += self.norm
            self.num_steps += 1
