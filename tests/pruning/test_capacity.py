"""Laws of the policy that sets layer widths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from graphs.necks import ConvNormRelu
from support.searches import by_group, ranking, search_in, started, tower
from trainonce.pruning.budget import Budget
from trainonce.pruning.policies import (
    Capacity,
    RandomChoice,
    Search,
)


def narrowing() -> nn.Sequential:
    """The same width at three resolutions: the same weights at 16, 4 and 1 times the cost."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [layer for _ in range(3) for layer in (ConvNormRelu(24, 24), nn.MaxPool2d(2))]
        return nn.Sequential(
            nn.Conv2d(3, 24, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 4)
        )


def search_in_narrowing(share: float = 0.5) -> Search:
    return search_in(narrowing(), example=torch.randn(2, 3, 16, 16), share=share)


def test_capacity_keeps_more_of_the_layers_whose_weights_cost_less():
    search = search_in_narrowing()
    widths = {}
    for exponent in (0.0, 0.2):
        masks = search.budget.choose(started(Capacity(exponent=exponent), search).scores())
        widths[exponent] = [int(mask.sum()) for mask in by_group(search, masks).values()]
    assert max(widths[0.0]) - min(widths[0.0]) <= 3, (
        "the same share of every layer, but for cheap units that fill the budget up"
    )
    assert widths[0.2] == sorted(widths[0.2])
    assert widths[0.2][-1] - widths[0.2][0] >= 6


class Residual(nn.Module):
    """A trunk that three layers read, and two branches that one reads each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormRelu(3, 24)
        self.branches = nn.ModuleList(
            nn.Sequential(ConvNormRelu(24, 24), nn.Conv2d(24, 24, 3, padding=1)) for _ in range(2)
        )
        self.head = nn.Linear(24, 4)

    def forward(self, images: Tensor) -> Tensor:
        trunk = self.stem(images)
        for branch in self.branches:
            trunk = trunk + branch(trunk)
        return self.head(trunk.mean((2, 3)))


@pytest.mark.parametrize("share", [0.6, 0.4, 0.15])
def test_capacity_narrows_what_many_layers_read_last(share: float):
    search = search_in(Residual(), example=torch.randn(2, 3, 8, 8), share=share)
    kept = {}
    for trunk in (1.0, 3.0):
        masks = search.budget.choose(started(Capacity(trunk=trunk, exponent=0.0), search).scores())
        kept[trunk] = [float(mask.mean()) for mask in by_group(search, masks).values()]
    assert max(kept[1.0]) - min(kept[1.0]) <= 0.1
    stem, *inner = kept[3.0]
    assert max(inner) - min(inner) <= 0.1
    assert abs(stem - min(1.0, 3 * sum(inner) / 2)) <= 0.15


def test_capacity_ranks_within_a_layer_as_it_is_told():
    search = search_in_narrowing()
    inner = started(RandomChoice(), search)
    scores = by_group(search, started(Capacity(RandomChoice()), search).scores())
    for name, expected in by_group(search, inner.scores()).items():
        assert ranking(scores[name]) == ranking(expected)


def test_capacity_without_cheaper_weights_is_the_same_share_of_every_layer():
    of_flops = search_in(tower(), share=0.4)
    search = replace(of_flops, budget=Budget.of_parameters(of_flops.units, 0.4, 1))
    masks = search.budget.choose(started(Capacity(), search).scores())
    shares = [float(mask.mean()) for mask in by_group(search, masks).values()]
    assert max(shares) - min(shares) <= 0.1
