"""Models of several families, with scores for their units, that budgets are tried on."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import trainonce
from graphs import GRAPHS
from graphs.necks import ConvNormRelu
from graphs.residual import BasicBlock
from graphs.subjects import fresh, inspected
from trainonce.pruning.units import Units

SHARES = [0.2, 0.35, 0.45, 0.6, 0.8]


class InvertedResidual(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            ConvNormRelu(width, hidden),
            ConvNormRelu(hidden, hidden, groups=hidden),
            nn.Conv2d(hidden, width, 1),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class DenseLayer(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(self.norm(x).relu())], dim=1)


def resnet() -> nn.Module:
    blocks = (
        BasicBlock(16, 16),
        BasicBlock(16, 32, stride=2),
        BasicBlock(32, 64, stride=2),
        BasicBlock(64, 64),
    )
    return nn.Sequential(
        ConvNormRelu(3, 16), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )


def wide_resnet() -> nn.Module:
    blocks = BasicBlock(128, 128), BasicBlock(128, 256, stride=2), BasicBlock(256, 256)
    return nn.Sequential(
        ConvNormRelu(3, 128), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)
    )


def mobilenet() -> nn.Module:
    blocks = (
        InvertedResidual(16, 64),
        ConvNormRelu(16, 24, stride=2),
        InvertedResidual(24, 96),
        ConvNormRelu(24, 32),
    )
    return nn.Sequential(
        ConvNormRelu(3, 16), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )


def densenet() -> nn.Module:
    layers = [DenseLayer(24 + 12 * number, 12) for number in range(4)]
    return nn.Sequential(
        ConvNormRelu(3, 24),
        *layers,
        nn.BatchNorm2d(72),
        nn.ReLU(),
        nn.Conv2d(72, 36, 1),
        nn.Conv2d(36, 10, 1),
    )


MODELS = {"resnet": resnet, "wide_resnet": wide_resnet, "mobilenet": mobilenet, "densenet": densenet}


@cache
def subject(name: str) -> tuple[nn.Module, Any, Units]:
    """A model, its example and its units; copied before it is cut."""
    if name in GRAPHS:
        model, example = fresh(name)
        partition = inspected(name).partition
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = MODELS[name]().eval()
        example = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        partition = trainonce.inspect(model, example)
    return model, example, Units.of(partition, dict(model.named_parameters()).keys())


def scores_of(units: Units, seed: int) -> Tensor:
    """Random, with the even seeds favouring whole layers over others."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(len(units), generator=generator)
    return (
        scores + torch.rand(len(units.groups), generator=generator)[units.group_of]
        if seed % 2 == 0
        else scores
    )
