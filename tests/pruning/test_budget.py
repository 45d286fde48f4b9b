"""A budget is a promise: at or below it, close to it, no group emptied, widths round where that fits."""

from __future__ import annotations

import copy
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs import GRAPHS
from graphs.necks import ConvNormRelu
from graphs.residual import BasicBlock
from graphs.subjects import count_macs, count_parameters, fresh, inspected
from trainonce.errors import BudgetError
from trainonce.pruning.budget import CLOSE_ENOUGH, CLOSE_ENOUGH_OF_BUDGET, Budget
from trainonce.pruning.units import Units
from trainonce.zoo.residual import thin_resnet

SHARES = [0.2, 0.35, 0.45, 0.6, 0.8]
ROUNDINGS = [None, 1, 4, 16]
NETS = sorted(name for name in GRAPHS if GRAPHS[name].expect_cut)[::6]


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


def one_more_fits(budget: Budget, masks: Tensor) -> bool:
    for unit in (masks == 0).nonzero().flatten().tolist():
        wider = masks.clone()
        wider[unit] = 1
        if budget.share_of(wider) <= budget.share:
            return True
    return False


@pytest.mark.parametrize("count", [Budget.of_flops, Budget.of_parameters], ids=["flops", "parameters"])
@pytest.mark.parametrize("name", [*MODELS, *NETS])
def test_the_promise(name: str, count: Any):
    _, _, units = subject(name)
    num_checked, unreachable = 0, set()
    for share in SHARES:
        for round_to in ROUNDINGS:
            try:
                budget = count(units, share, round_to)
            except BudgetError:
                unreachable.add(share)
                continue
            masks = budget.choose(scores_of(units, seed=num_checked))
            used = budget.share_of(masks)
            assert set(masks.unique().tolist()) <= {0.0, 1.0}
            assert used <= share
            assert share - used <= 0.01 or not one_more_fits(budget, masks)
            assert bool((units.per_group(masks) >= 1).all())
            num_checked += 1
    smallest = count(units, 1.0, None).share_of(one_of_each(units))
    assert unreachable == {share for share in SHARES if share < smallest}


def one_of_each(units: Units) -> Tensor:
    """One unit in every group."""
    masks = torch.zeros(len(units))
    for number in range(len(units.groups)):
        masks[int((units.group_of == number).nonzero()[0])] = 1
    return masks


@pytest.mark.parametrize("name", [*MODELS, *NETS[::2]])
@pytest.mark.parametrize("share", [0.3, 0.45, 0.7])
def test_torch_counts_the_same_on_the_cut_model(name: str, share: float):
    model, example, units = subject(name)
    total, total_parameters = count_macs(model, example), count_parameters(model)
    for make in (Budget.of_flops, Budget.of_parameters):
        try:
            budget = make(units, share, None)
        except BudgetError:
            continue
        masks = budget.choose(scores_of(units, seed=1))
        small = trainonce.cut(
            copy.deepcopy(model), trainonce.Plan.from_masks(units.partition, units.split(masks))
        )
        counted = (
            count_macs(small, example) / total
            if make == Budget.of_flops
            else count_parameters(small) / total_parameters
        )
        assert counted <= share
        assert counted == pytest.approx(budget.share_of(masks), rel=1e-12)
        if name in MODELS:
            assert share - counted <= 0.01


@pytest.mark.parametrize("name", [*MODELS, *NETS[::3]])
def test_inside_a_group_the_best_stay(name: str):
    _, _, units = subject(name)
    scores = scores_of(units, seed=3)
    masks = Budget.of_flops(units, 0.8, None).choose(scores)
    for kept, piece in zip(units.split(masks).values(), units.split(scores).values(), strict=True):
        if bool((kept == 0).any()):
            assert float(piece[kept == 1].min()) >= float(piece[kept == 0].max())


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("round_to", [None, 1])
def test_a_kept_unit_that_scores_higher_is_still_kept(name: str, round_to: int | None):
    _, _, units = subject(name)
    budget = Budget.of_flops(units, 0.45, round_to)
    scores = scores_of(units, seed=5)
    kept = budget.choose(scores).nonzero().flatten()
    for unit in kept[torch.randperm(len(kept), generator=torch.Generator().manual_seed(0))[:8]].tolist():
        higher = scores.clone()
        higher[unit] += 1
        assert float(budget.choose(higher)[unit]) == 1


@pytest.mark.parametrize("name", list(MODELS))
def test_a_larger_budget_keeps_more(name: str):
    _, _, units = subject(name)
    scores = scores_of(units, seed=7)
    used = [
        Budget.of_flops(units, share, 1).share_of(Budget.of_flops(units, share, 1).choose(scores))
        for share in SHARES
    ]
    assert used == sorted(used)
    assert bool(Budget.of_flops(units, 1.0, None).choose(scores).all())


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


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_what_lies_above_the_line_meets_the_budget(name: str, share: float):
    _, _, units = subject(name)
    budget = Budget.of_flops(units, share, None)
    scores = scores_of(units, seed=9)
    above = (scores > budget.line(scores)).double()
    assert budget.share_of(above) <= share
    assert bool((scores > budget.line(scores, share=1.0)).all())


def test_the_penalty_is_the_papers():
    _, _, units = subject("resnet")
    budget = Budget.of_flops(units, 0.5, None)
    masks = torch.ones(len(units), dtype=torch.double, requires_grad=True)
    penalty = budget.penalty(masks)
    assert float(penalty.detach()) == pytest.approx(torch.tensor(1 / 0.5).log().item(), rel=1e-6)
    (gradient,) = torch.autograd.grad(penalty, masks)
    assert bool((gradient > 0).all())
    assert float(budget.penalty(budget.choose(scores_of(units, seed=1)))) == 0


def test_a_share_that_is_met_exactly_is_met():
    """0.29 * 200 rounds to just below 58, the whole number of multiply-adds that is exactly 29 %."""
    model = nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Linear(100, 1))
    units = Units.of(trainonce.inspect(model, torch.randn(1, 1)), dict(model.named_parameters()).keys())
    for num_kept in range(1, 101):
        budget = Budget.of_flops(units, num_kept / 100, 1)
        assert int(budget.choose(scores_of(units, seed=num_kept)).sum()) == num_kept


@pytest.mark.parametrize("word", ["keep_flops", "keep_params"])
@pytest.mark.parametrize("share", [1e-6, 2e-4])
def test_an_unreachable_share_names_the_range(word: str, share: float):
    model, example, _ = subject("resnet")
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def attached(share: float) -> trainonce.Pruner:
        return trainonce.attach(model, optimizer, example=example, total_steps=10_000, **{word: share})

    with pytest.raises(
        BudgetError, match=rf"^{word}=\S+ can't be reached: [^\n]* Ask for 0\.\d+ to 1[^\n]*$"
    ) as caught:
        attached(share)
    smallest = float(str(caught.value).partition("Ask for ")[2].partition(" ")[0])
    attached(smallest)
    with pytest.raises(BudgetError):
        attached(smallest - 2e-4)


@pytest.mark.parametrize(
    "share", [0, 0.0, -0.1, 1.0001, 45, float("nan"), float("inf"), "0.5", None, True, torch.tensor(0.5)]
)
@pytest.mark.parametrize("count", [Budget.of_flops, Budget.of_parameters])
def test_what_is_no_share_is_refused(count: Any, share: Any):
    _, _, units = subject("resnet")
    with pytest.raises(BudgetError, match=r"must be above 0 and at most 1, got [^\n]*$"):
        count(units, share, None)


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


@pytest.mark.parametrize("scores", [torch.ones(3), torch.ones(1, 5)], ids=["short", "matrix"])
def test_scores_of_the_wrong_shape_are_refused(scores: Tensor):
    _, _, units = subject("resnet")
    with pytest.raises(ValueError, match=r"^scores must be [^\n]*$"):
        Budget.of_flops(units, 0.5, None).choose(scores)


def test_scores_that_are_not_numbers_are_refused():
    _, _, units = subject("resnet")
    scores = scores_of(units, seed=0)
    scores[4] = float("nan")
    with pytest.raises(ValueError, match=r"^scores must be [^\n]*$"):
        Budget.of_flops(units, 0.5, None).choose(scores)


def test_a_model_of_which_nothing_may_be_cut_is_refused():
    model = nn.Linear(4, 4)
    with pytest.raises(BudgetError, match=r"^keep_flops=1 has nothing to cut[^\n]*$"):
        trainonce.attach(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            example=torch.randn(2, 4),
            keep_flops=1,
            total_steps=1000,
        )


def test_a_model_without_multiply_adds_is_refused():
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Embedding(5, 8), nn.Embedding(5, 8)

        def forward(self, words: Tensor) -> Tensor:
            return (self.left(words) * self.right(words)).sum(-1)

    model = Tables()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BudgetError, match=r"^keep_flops has nothing to count[^\n]*$"):
        trainonce.attach(model, optimizer, example=torch.randint(5, (2, 3)), keep_flops=0.5, total_steps=1000)
