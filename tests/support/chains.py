"""A chain of layers that is cut in half, and training steps on it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from graphs.necks import ConvNormRelu
from graphs.subjects import (
    redraw,
    redraw_statistics,
)


class Chain(nn.Module):
    """Ordinary layers whose silent channels get no gradient: batch norm, then ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ConvNormRelu(3, 12)
        self.depthwise = ConvNormRelu(12, 12, groups=12)
        self.second = ConvNormRelu(12, 10)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.depthwise(self.first(x)))
        return self.head(self.dropout(x.mean((2, 3))))


def example() -> Tensor:
    return torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def chain() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Chain().double()
    redraw(model)
    redraw_statistics(model, example())
    return model


def half_plan(model: nn.Module, x: Tensor | None = None, *, seed: int = 0) -> trainonce.Plan:
    return trainonce.Plan.random(trainonce.inspect(model, example() if x is None else x), keep=0.5, seed=seed)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        x = torch.randn(8, 3, 6, 6, generator=generator, dtype=torch.double)
        target = torch.randint(4, (8,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()


def narrowed(tensor: Tensor, plan: trainonce.Plan, name: str) -> Tensor:
    """What the plan leaves of a tensor of that name."""
    for axis_cut in plan.cuts:
        if axis_cut.tensor == name:
            tensor = tensor.index_select(axis_cut.axis, torch.tensor(axis_cut.kept))
    return tensor


def states_equal(left: nn.Module, right: nn.Module) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
