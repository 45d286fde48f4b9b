"""Laws of a run that cuts twice.

The second cut stands on the first, and cutting early changes nothing but the work.
"""

from __future__ import annotations

import copy
from functools import reduce
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs import GRAPHS
from graphs.subjects import fresh, inspected
from support.choices import OPTIMIZERS, POLICIES
from support.digits import attached, convolutional, predictions, train
from trainonce import Plan, Schedule
from trainonce.pruning.budget import Budget
from trainonce.pruning.units import Units
from trainonce.structure.succession import joined, plan_after
from trainonce.surgery.slicing import apply_plan, plans_of

TWICE = Schedule(search_from=5, shrink_from=10, first_cut_from=40, settle_from=80, update_every=1)
NETS = sorted(name for name in GRAPHS if GRAPHS[name].expect_cut)


def nested_masks(name: str, seed: int) -> list[dict[str, Tensor]]:
    """Masks, and masks within them."""
    generator = torch.Generator().manual_seed(seed)
    first, second = {}, {}
    for group in inspected(name).partition.prunable_groups:
        order = torch.rand(group.num_channels, generator=generator).argsort().argsort()
        first[group.name] = order < max(1, round(0.7 * group.num_channels))
        second[group.name] = order < max(1, round(0.4 * group.num_channels))
    return [first, second]


@pytest.mark.parametrize("name", NETS[::3])
def test_two_cuts_are_one(name: str):
    partition = inspected(name).partition
    plans = [Plan.from_masks(partition, masks) for masks in nested_masks(name, seed=0)]
    at_once, _ = fresh(name)
    apply_plan(at_once, plans[1])
    in_turn, _ = fresh(name)
    apply_plan(in_turn, plans[0])
    apply_plan(in_turn, plan_after(plans[0], plans[1]))
    assert _same(in_turn.state_dict(), at_once.state_dict())
    assert _numbers(in_turn) == _numbers(at_once)
    both = reduce(joined, plans_of(in_turn))
    assert both.kept == plans[1].kept
    assert both.shapes == plans[1].shapes
    assert set(both.cuts) == set(plans[1].cuts)
    assert set(both.attributes) == set(plans[1].attributes)


def _same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(
        torch.equal(left[key], right[key]) for key in left if isinstance(left[key], Tensor)
    )


def _numbers(model: nn.Module) -> list[Any]:
    """The whole numbers that modules remember."""
    return [
        (name, key, value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, int)
    ]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
@pytest.mark.parametrize("name", POLICIES)
def test_cutting_early_changes_nothing_but_the_work(name: str, make_optimizer: Any):
    finals = []
    for shrink in (True, False):
        model = convolutional(24).double()
        optimizer = make_optimizer(model.parameters())
        pruner = attached(
            model,
            optimizer,
            130,
            shrink=shrink,
            policy=POLICIES[name](),
            schedule=TWICE,
            round_to=1,
            keep_flops=0.3,
        )
        sizes: list[int] = []

        def note(_step: int, _cut: bool, model: nn.Module = model, sizes: list[int] = sizes) -> None:
            sizes.append(sum(parameter.numel() for parameter in model.parameters()))

        train(model, optimizer, pruner, steps=range(130), size=16, after=note)
        # Two cuts: three sizes.
        assert len(set(sizes)) == (3 if shrink else 1)
        pruner.finish()
        assert pruner.keep_now <= 0.3
        finals.append((predictions(model), pruner.masks))
    assert all(torch.equal(finals[0][1][group], finals[1][1][group]) for group in finals[0][1])
    assert float((finals[0][0] - finals[1][0]).abs().max()) < 1e-8 * float(finals[0][0].abs().max())


def test_what_went_early_stays_away():
    _, units = _units()
    budget = Budget.of_flops(units, 0.3, None)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        first = budget.choose(torch.rand(len(units), generator=generator), share=0.6)
        left = budget.within(first)
        # What is gone has the highest scores of all, and no right to come back.
        second = left.choose(torch.rand(len(units), generator=generator) + 5 * (first == 0))
        assert bool((second <= first).all())
        assert bool((units.per_group(second) >= 1).all())
        assert budget.share_of(second) <= 0.3


def _units() -> tuple[nn.Module, Units]:
    model = convolutional(24)
    partition = trainonce.inspect(model, torch.randn(2, 1, 8, 8))
    return model, Units.of(partition, dict(model.named_parameters()).keys())


def test_the_saved_small_model_loads_onto_a_dense_one(tmp_path):
    model = convolutional(24)
    dense = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    pruner = attached(model, optimizer, 130, schedule=TWICE, keep_flops=0.3)
    train(model, optimizer, pruner, steps=range(130), size=16)
    small = pruner.finish().eval()
    assert len(pruner.cuts) == 2
    trainonce.save(small, tmp_path / "small")
    again = trainonce.load(tmp_path / "small", into=dense).eval()
    assert torch.equal(predictions(again), predictions(small))


@pytest.mark.parametrize("first_cut_from", [0.05, 0.9, -1, "soon"])
def test_a_first_cut_out_of_turn_is_refused(first_cut_from: Any):
    with pytest.raises(ValueError, match=r"first.cut"):
        Schedule(first_cut_from=first_cut_from).in_steps(100)
