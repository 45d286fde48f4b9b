"""Small nets, and searches in them that policies are tried in."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import trainonce
from graphs.necks import ConvNormRelu
from trainonce.pruning.budget import Budget
from trainonce.pruning.policies import (
    Policy,
    Search,
)
from trainonce.pruning.units import Units

IMAGES = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3])


def net() -> nn.Sequential:
    """Two groups with norms, and a hidden linear layer without."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            ConvNormRelu(3, 12),
            ConvNormRelu(12, 8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 20),
            nn.ReLU(),
            nn.Linear(20, 4),
        )


def tower() -> nn.Sequential:
    """Layers of like cost and many channels: shares of them are fine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            ConvNormRelu(3, 32),
            ConvNormRelu(32, 32),
            ConvNormRelu(32, 48),
            ConvNormRelu(48, 32),
            nn.Conv2d(32, 4, 6),
        )


def search_in(
    model: nn.Module,
    *,
    example: Tensor = IMAGES,
    share: float = 0.5,
    seed: int = 0,
    progress: Callable[[], float] = lambda: 1.0,
    kind: type[Budget] = Budget,
) -> Search:
    tensors = dict(model.named_parameters())
    units = Units.of(trainonce.inspect(model, example), tensors.keys())
    return Search(units, tensors, kind.of_flops(units, share, 1), seed, 100, progress, model)


def started(policy: Policy, search: Search) -> Policy:
    policy.start(search)
    return policy


def by_group(search: Search, vector: Tensor) -> dict[str, Tensor]:
    return search.units.split(vector)


def ranking(values: Tensor) -> list[int]:
    return values.argsort().tolist()
