"""Rows are gathered, written back and summed to units as plain loops over positions do it; ranks count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import trainonce
from support.digits import batch, convolutional
from support.scattered import gathered, scattered_units
from trainonce.pruning.ranking import Ranking
from trainonce.pruning.units import Rows, Units, as_matrix, row_sums
from trainonce.pruning.widths import Widths


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


SHAPES = [((9,), 0), ((9, 4), 0), ((5, 9), 1), ((9, 3, 2, 2), 0), ((4, 9, 3), 1)]
every_shape = pytest.mark.parametrize(("shape", "axis"), SHAPES)


def some_rows(axis: int) -> Rows:
    return Rows("weight", axis, torch.tensor([7, 0, 3, 4]), torch.tensor([2, 0, 2, 1]))


@every_shape
def test_rows_are_taken_and_put_back_where_they_were(shape: tuple[int, ...], axis: int):
    tensor, rows = drawn(*shape), some_rows(axis)
    taken = rows.take(tensor)
    for row, position in zip(taken, rows.positions, strict=True):
        assert torch.equal(row, tensor.select(axis, int(position)))
    changed = tensor.clone()
    rows.put(changed, -taken)
    for position in range(9):
        sign = -1 if position in rows.positions else 1
        assert torch.equal(changed.select(axis, position), sign * tensor.select(axis, position))


@every_shape
def test_sums_of_rows_add_up_to_units(shape: tuple[int, ...], axis: int):
    tensor, rows = drawn(*shape), some_rows(axis)
    wanted = [tensor.select(axis, position).sum() for position in (7, 0, 3, 4)]
    assert torch.allclose(rows.sums(tensor), torch.stack(wanted))
    assert torch.allclose(row_sums(rows.take(tensor)), torch.stack(wanted))
    assert torch.allclose(as_matrix(rows.take(tensor)).sum(dim=1), torch.stack(wanted))
    total = torch.ones(4, dtype=torch.double)
    rows.add_to_units(total, rows.sums(tensor))
    assert torch.allclose(
        total, 1 + torch.stack([wanted[1], wanted[3], wanted[0] + wanted[2], 0 * wanted[0]])
    )


def test_a_number_per_unit_comes_from_all_of_its_rows():
    units, tensors = scattered_units()
    squares = units.sum_rows(tensors, lambda rows, _: row_sums(rows.square()))
    for unit in range(len(units)):
        assert float(squares[unit]) == pytest.approx(float(gathered(units, tensors, unit).square().sum()))


@pytest.fixture(name="units", scope="module")
def units_of_a_network() -> Units:
    model = convolutional(6)
    return Units.of(trainonce.inspect(model, batch(0, 1)[0]), dict(model.named_parameters()).keys())


@pytest.mark.parametrize("seed", range(3))
def test_the_rank_is_the_number_of_better_units_in_the_group(units: Units, seed: int):
    # Few values, so that there are ties: the first comes first.
    scores = (2 * drawn(len(units), seed=seed)).round()
    rank = units.rank_in_group(scores)
    for unit in range(len(units)):
        peers = [other for other in range(len(units)) if units.group_of[other] == units.group_of[unit]]
        better = [
            other
            for other in peers
            if scores[other] > scores[unit] or (scores[other] == scores[unit] and other < unit)
        ]
        assert int(rank[unit]) == len(better)
    order = units.best_first(scores)
    assert sorted(order.tolist()) == list(range(len(units)))
    assert torch.equal(units.group_of[order], units.group_of)
    assert torch.equal(rank[order], units.rank_in_group(-torch.arange(len(units)).double()))


def test_a_ranking_keeps_the_best_and_never_what_is_gone(units: Units):
    scores, everything = drawn(len(units)), torch.ones(len(units), dtype=torch.bool)
    available = everything.clone()
    available[scores.argmax()] = False
    ranking = Ranking(units, Widths.of(units.groups), scores, available=available, required=~everything)
    masks = ranking.masks(ranking.widths_of_best(int(available.sum()) // 2))
    assert float(masks[scores.argmax()]) == 0
    for number in range(len(units.groups)):
        here = (units.group_of == number) & available
        kept, dropped = scores[here & (masks == 1)], scores[here & (masks == 0)]
        assert len(kept) >= 1
        assert not len(dropped) or float(kept.min()) > float(dropped.max())
