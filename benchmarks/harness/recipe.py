"""Recipes, each one for all contenders: an optimizer, a short warm-up, then a cosine to zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How a model is trained, whoever prunes it."""

    peak_learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    warm_up: float = 0.05
    """Share of the run in which the learning rate rises."""

    def optimizer(self, model: nn.Module) -> torch.optim.SGD:
        return torch.optim.SGD(
            model.parameters(),
            lr=self.peak_learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )

    def learning_rate(self, step: int, total_steps: int) -> float:
        """Of one step; steps count from 0."""
        warm_up_steps = max(1, round(self.warm_up * total_steps))
        if step < warm_up_steps:
            return self.peak_learning_rate * (step + 1) / warm_up_steps
        done = (step - warm_up_steps) / max(1, total_steps - warm_up_steps)
        return self.peak_learning_rate * 0.5 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWRecipe(Recipe):
    """The same warm-up and cosine with AdamW; weight decay for matrices only if `decays_vectors` is False."""

    betas: tuple[float, float] = (0.9, 0.999)
    decays_vectors: bool = True

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:  # type: ignore[override]
        parameters = list(model.parameters())
        groups = [
            {"params": [parameter for parameter in parameters if self.decays_vectors or parameter.dim() > 1]},
            {
                "params": [p for p in parameters if not self.decays_vectors and p.dim() < 2],
                "weight_decay": 0.0,
            },
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=self.peak_learning_rate,
            betas=self.betas,
            weight_decay=self.weight_decay,
        )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]) -> None:
    """One plain training step."""
    cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()
    optimizer.zero_grad()
