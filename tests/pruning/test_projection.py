"""Rows scattered over many parameters are pulled as the pure operators pull one vector.

Nothing else moves.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from support.pulled import PULLED, STRENGTH, copies, second_moments, stepped
from support.ragged import half_spaced, shrunk, shrunk_in_metric
from support.scattered import gathered, scattered_units, units_over
from trainonce.pruning.pulling.projection import AdamMetric, HalfSpace, Projection, Proximal, Pull
from trainonce.pruning.units import Rows, Units


def test_proximal_is_the_pure_operator_on_the_concatenated_unit():
    units, tensors = scattered_units()
    projection = Projection(units, tensors, torch.optim.SGD(tensors.values(), lr=0.1))
    before = copies(tensors)
    projection.select(PULLED)
    projection.apply(Proximal(), STRENGTH)
    outcomes = set()
    for unit in PULLED.nonzero().flatten().tolist():
        wanted = shrunk(gathered(units, before, unit)[None], 0.1 * STRENGTH)[0]
        assert torch.allclose(gathered(units, tensors, unit), wanted, rtol=1e-14, atol=0)
        outcomes.add(bool(wanted.any()))
    assert outcomes == {True, False}


def test_a_strong_pull_zeroes_exactly():
    units, tensors = scattered_units()
    projection = Projection(units, tensors, torch.optim.SGD(tensors.values(), lr=0.1))
    projection.select(PULLED)
    assert not projection.all_zero()
    projection.apply(Proximal(), 1e3)
    assert projection.all_zero()
    assert torch.equal(projection.norms() == 0, PULLED)


@pytest.mark.parametrize(("epsilon", "strength"), [(0.0, 50.0), (0.4, 30.0)])
def test_half_space_is_the_pure_operator_on_the_concatenated_unit(epsilon: float, strength: float):
    units, tensors = scattered_units()
    optimizer = torch.optim.SGD(tensors.values(), lr=0.1)
    projection = Projection(units, tensors, optimizer)
    projection.select(PULLED)
    before = copies(tensors)
    projection.remember()
    stepped(tensors, optimizer)
    trial = copies(tensors)
    projection.apply(HalfSpace(epsilon), strength)
    outcomes = set()
    for unit in PULLED.nonzero().flatten().tolist():
        x, z = gathered(units, before, unit), gathered(units, trial, unit)
        wanted = half_spaced((z - 0.1 * strength * x / x.norm())[None], x[None], epsilon)[0]
        assert torch.allclose(gathered(units, tensors, unit), wanted, rtol=1e-12, atol=1e-14)
        outcomes.add(bool(wanted.any()))
    assert outcomes == {True, False}


@pytest.mark.parametrize("strength", [0.5, 5.0, 60.0])
def test_adam_metric_is_the_pure_operator_on_the_concatenated_unit(strength: float):
    units, tensors = scattered_units()
    optimizer = torch.optim.Adam(tensors.values(), lr=0.1)
    projection = Projection(units, tensors, optimizer)
    projection.select(PULLED)
    for seed in (1, 2):
        stepped(tensors, optimizer, seed=seed)
    before, metrics = copies(tensors), second_moments(tensors, optimizer)
    projection.apply(AdamMetric(), strength)
    for unit in PULLED.nonzero().flatten().tolist():
        x, metric = gathered(units, before, unit), gathered(units, metrics, unit)
        wanted = shrunk_in_metric(x[None], metric[None], 0.1 * strength)[0]
        assert torch.allclose(gathered(units, tensors, unit), wanted, rtol=1e-10, atol=1e-12)


def test_adam_metric_without_second_moments_is_the_plain_operator():
    (units, tensors), (_, others) = scattered_units(), scattered_units()
    for pull, mine in ((AdamMetric(), tensors), (Proximal(), others)):
        projection = Projection(units, mine, torch.optim.SGD(mine.values(), lr=0.1))
        projection.select(PULLED)
        projection.apply(pull, STRENGTH)
    for name in tensors:
        assert torch.allclose(tensors[name], others[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "pull", [Proximal(), HalfSpace(0.3), AdamMetric()], ids=["proximal", "half_space", "adam_metric"]
)
def test_only_selected_units_change(pull: Pull, dtype: torch.dtype):
    units, tensors = scattered_units(dtype)
    optimizer = torch.optim.Adam(tensors.values(), lr=0.1)
    projection = Projection(units, tensors, optimizer)
    projection.select(PULLED)
    projection.remember()
    stepped(tensors, optimizer)
    before = copies(tensors)
    state = {
        name: {key: torch.as_tensor(item).clone() for key, item in optimizer.state[p].items()}
        for name, p in tensors.items()
    }
    projection.apply(pull, STRENGTH, largest_scale=0.5)
    for name, parameter in tensors.items():
        changed = torch.zeros(parameter.shape, dtype=torch.bool)
        for rows in units.writers:
            if rows.tensor == name:
                changed.index_fill_(rows.axis, rows.positions[PULLED[rows.units]], True)
        assert torch.equal(parameter[~changed], before[name][~changed])
        assert bool((parameter[changed] != before[name][changed]).any())
        assert bool(
            (parameter[changed].abs() <= 0.5 * before[name][changed].abs() * (1 + 1e-2)).all()
        ) or isinstance(pull, HalfSpace)
        for key, item in optimizer.state[parameter].items():
            if item.shape == parameter.shape:
                assert torch.equal(item[~changed], state[name][key][~changed])
            else:
                assert torch.equal(item, state[name][key])


@pytest.mark.parametrize("strength", [1.0, 20.0, 1e4])
@pytest.mark.parametrize(
    "pull", [Proximal(), HalfSpace(0.3), AdamMetric()], ids=["proximal", "half_space", "adam_metric"]
)
def test_a_pull_ends_at_the_floor(pull: Pull, strength: float):
    """However strong: what is above the floor ends at it or above, what is below it already does not move."""
    units, tensors = scattered_units()
    optimizer = torch.optim.Adam(tensors.values(), lr=0.1)
    projection = Projection(units, tensors, optimizer)
    projection.select(PULLED)
    projection.remember()
    stepped(tensors, optimizer)
    norms = projection.norms()
    floor = 0.5 * norms
    floor[3] = 2 * norms[3]
    before = copies(tensors)
    projection.apply(pull, strength, floor=floor)
    for unit in range(6):
        old, new = gathered(units, before, unit), gathered(units, tensors, unit)
        if unit == 3 or not PULLED[unit]:
            assert torch.equal(new, old)
        else:
            assert float(new.norm()) >= float(floor[unit]) * (1 - 1e-6)
            assert float(new.norm()) < float(old.norm())
            if strength == 1e4:
                assert torch.allclose(new, old / 2, rtol=1e-5)


def crossing() -> tuple[Units, dict[str, nn.Parameter]]:
    """A square matrix whose rows are units 0 to 4 and whose columns are units 5 to 8, and vectors of both."""
    generator = torch.Generator().manual_seed(3)
    shapes = {"matrix": (5, 4), "left": (5,), "right": (4,)}
    tensors = {
        name: nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.double))
        for name, shape in shapes.items()
    }
    units = units_over(
        9,
        Rows("matrix", 0, torch.arange(5), torch.arange(5)),
        Rows("left", 0, torch.arange(5), torch.arange(5)),
        Rows("matrix", 1, torch.arange(4), torch.arange(5, 9)),
        Rows("right", 0, torch.arange(4), torch.arange(5, 9)),
    )
    return units, tensors


@pytest.mark.parametrize(
    "pull", [Proximal(), HalfSpace(0.1), AdamMetric()], ids=["proximal", "half_space", "adam_metric"]
)
@pytest.mark.parametrize("strength", [3.0, 17.0])
def test_both_axes_of_one_parameter(pull: Pull, strength: float):
    """Where only one unit of two is pulled the answer is that unit's; where both are, both factors act."""
    pulled = torch.tensor([True, False, True, False, False, False, True, True, False])

    def run(chosen: Tensor) -> tuple[dict[str, nn.Parameter], dict[str, Tensor]]:
        units, tensors = crossing()
        optimizer = torch.optim.Adam(tensors.values(), lr=0.1)
        projection = Projection(units, tensors, optimizer)
        projection.select(chosen)
        projection.remember()
        stepped(tensors, optimizer)
        before = copies(tensors)
        projection.apply(pull, strength)
        return tensors, before

    rows_only, columns_only = pulled.clone(), pulled.clone()
    rows_only[5:], columns_only[:5] = False, False
    (both, before), (by_row, _), (by_column, _) = run(pulled), run(rows_only), run(columns_only)
    for name in ("left", "right"):
        assert torch.allclose(
            both[name], by_row[name] if name == "left" else by_column[name], rtol=1e-12, atol=1e-14
        )
    expected = (
        before["matrix"] * (by_row["matrix"] / before["matrix"]) * (by_column["matrix"] / before["matrix"])
    )
    assert torch.allclose(both["matrix"], expected, rtol=1e-9, atol=1e-12)
    assert not torch.equal(by_row["matrix"], before["matrix"])
    assert not torch.equal(by_column["matrix"], before["matrix"])
