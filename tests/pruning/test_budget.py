"""A budget is a promise: at or below it, close to it, no group emptied, widths round where that fits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs import GRAPHS
from graphs.subjects import count_macs, count_parameters
from support.budgets import (
    MODELS,
    SHARES,
    scores_of,
    subject,
)
from trainonce.errors import BudgetError
from trainonce.pruning.budget import Budget
from trainonce.pruning.units import Units

ROUNDINGS = [None, 1, 4, 16]


NETS = sorted(name for name in GRAPHS if GRAPHS[name].expect_cut)[::6]


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


@pytest.mark.parametrize("scores", [torch.ones(3), torch.ones(1, 5)], ids=["short", "matrix"])
def test_scores_of_the_wrong_shape_are_refused(scores: Tensor):
    _, _, units = subject("resnet")
    with pytest.raises(ValueError, match=r"^a policy's scores must be [^\n]*$"):
        Budget.of_flops(units, 0.5, None).choose(scores)


def test_scores_that_are_not_numbers_are_refused():
    _, _, units = subject("resnet")
    scores = scores_of(units, seed=0)
    scores[4] = float("nan")
    with pytest.raises(ValueError, match=r"^a policy's scores must be [^\n]*$"):
        Budget.of_flops(units, 0.5, None).choose(scores)


def test_a_model_of_which_nothing_may_be_cut_is_refused():
    model = nn.Linear(4, 4)
    with pytest.raises(BudgetError, match=r"^keep_flops=1 can't be met[^\n]*$"):
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
