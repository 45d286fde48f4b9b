"""Widths are round where the budget has room for it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import trainonce
from support.budgets import (
    MODELS,
    SHARES,
    scores_of,
    subject,
)
from trainonce.errors import BudgetError
from trainonce.pruning.budget import CLOSE_ENOUGH, CLOSE_ENOUGH_OF_BUDGET, Budget
from trainonce.pruning.units import Units
from trainonce.zoo.residual import thin_resnet


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("round_to", [None, 4, 16])
@pytest.mark.parametrize("share", [0.35, 0.6])
def test_widths_are_round_where_that_fits(name: str, round_to: int | None, share: float):
    """If a width is not round, then with the round width below it too much of the budget would be left."""
    _, _, units = subject(name)
    budget = Budget.of_flops(units, share, round_to)
    masks = budget.choose(scores_of(units, seed=2))
    sizes = units.per_group(torch.ones(len(units)))
    widths = units.per_group(masks)
    steps = budget.roundings
    odd = (widths % steps != 0) & (widths != sizes) & (widths > steps)
    if not bool(odd.any()):
        return
    rounder = masks.clone()
    for number in odd.nonzero().flatten().tolist():
        alive = ((units.group_of == number) & (masks == 1)).nonzero().flatten()
        rounder[alive[int(widths[number] // steps[number] * steps[number]) :]] = 0
    assert share - budget.share_of(rounder) > min(CLOSE_ENOUGH, CLOSE_ENOUGH_OF_BUDGET * share)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.15, 0.3])
def test_a_small_budget_is_used_up_too(share: float, seed: int):
    """Half a percent of the model is much of a small budget.

    It is met within a percent of itself, in spite of round widths.
    """
    model = thin_resnet(20, 10)
    units = Units.of(
        trainonce.inspect(model, torch.zeros(1, 3, 32, 32)), dict(model.named_parameters()).keys()
    )
    budget = Budget.of_flops(units, share, None)
    assert 0.99 * share <= budget.share_of(budget.choose(scores_of(units, seed=seed))) <= share


@pytest.mark.parametrize("share", [0.2, 0.25, 0.3, 0.4])
def test_rounding_starves_no_layer(share: float):
    """What does not fit with a round width goes down to a finer one, not to a single channel."""
    model = thin_resnet(20, 10)
    units = Units.of(
        trainonce.inspect(model, torch.zeros(1, 3, 32, 32)), dict(model.named_parameters()).keys()
    )
    places = torch.cat(
        [torch.arange(1, group.num_channels + 1) / group.num_channels for group in units.groups]
    )
    # The same share of every layer, but for one that is wanted a little less than all others.
    for number in range(len(units.groups)):
        scores = -places - 0.05 * (units.group_of == number)
        plain = units.per_group(Budget.of_flops(units, share, 1).choose(scores))
        rounded = units.per_group(Budget.of_flops(units, share, None).choose(scores))
        assert bool((rounded >= (plain / 2).floor().clamp_min(1)).all()), (
            number,
            plain.tolist(),
            rounded.tolist(),
        )


def test_widths_are_rounded_to_a_sixteenth_of_the_layer():
    model = nn.Sequential(
        *(nn.Conv2d(*pair, 1) for pair in pairwise([3, 7, 16, 24, 32, 64, 100, 128, 512, 4]))
    )
    units = Units.of(trainonce.inspect(model, torch.zeros(1, 3, 4, 4)), dict(model.named_parameters()).keys())
    assert Budget.of_flops(units, 0.5, None).roundings.tolist() == [1, 1, 1, 2, 4, 4, 8, 16]


@pytest.mark.parametrize("share", [0.35, 0.45, 0.6])
def test_wide_layers_have_widths_of_sixteen(share: float):
    _, _, units = subject("wide_resnet")
    masks = Budget.of_flops(units, share, None).choose(scores_of(units, seed=1))
    widths = units.per_group(masks)
    assert int((widths % 16 == 0).sum()) >= len(widths) - 2


@pytest.mark.parametrize("share", SHARES)
def test_where_whole_steps_do_not_fit_quarters_of_them_are_tried_before_odd_widths(share: float):
    _, _, units = subject("resnet")
    budget = Budget.of_flops(units, share, 8)
    widths = units.per_group(budget.choose(scores_of(units, seed=1))).long()
    assert bool((widths % 2 == 0).all())


@pytest.mark.parametrize("round_to", [0, -8, 1.5, "8", True])
def test_what_is_no_rounding_is_refused(round_to: Any):
    _, _, units = subject("resnet")
    with pytest.raises(BudgetError, match=r"^round_to must be an integer of at least 1, got [^\n]*$"):
        Budget.of_flops(units, 0.5, round_to)
