"""Phases come in order, the controller is updated as often as promised, and what goes is gone in time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from trainonce.errors import SettingError
from trainonce.pruning.schedule import FEW_UPDATES, Schedule, ShortRunWarning, Strength, enough_steps


def test_the_papers_fractions():
    table = Schedule.paper().in_steps(1000)
    assert (table.search_from, table.shrink_from, table.settle_from, table.total_steps) == (
        100,
        200,
        500,
        1000,
    )


@pytest.mark.parametrize("total_steps", [10, 77, 1000, 117_300])
def test_fractions_and_steps_say_the_same(total_steps: int):
    by_fraction = Schedule(search_from=0.2, shrink_from=0.3, settle_from=0.6, update_every=3).in_steps(
        total_steps
    )
    by_step = Schedule(
        search_from=round(0.2 * total_steps),
        shrink_from=round(0.3 * total_steps),
        settle_from=round(0.6 * total_steps),
        update_every=3,
    ).in_steps(total_steps)
    assert by_fraction == by_step


@pytest.mark.parametrize("total_steps", [50, 999, 3000, 20_000, 117_300])
@pytest.mark.parametrize("update_every", [None, 1, 7])
def test_the_controller_is_due_as_often_as_counted(total_steps: int, update_every: int | None):
    table = Schedule(update_every=update_every).in_steps(total_steps)
    due = [step for step in range(total_steps) if table.is_update(step)]
    assert len(due) == table.num_updates
    assert due[0] == table.search_from
    assert due[-1] < table.settle_from
    assert {later - earlier for earlier, later in itertools.pairwise(due)} <= {
        update_every or table.update_every
    }
    assert all(table.is_searching(step) for step in due)
    assert not table.is_searching(table.search_from - 1)
    assert not table.is_searching(table.settle_from)


def test_long_runs_update_at_the_papers_rate_and_short_ones_more_often():
    assert Schedule().in_steps(117_300).update_every == 20
    rates = [
        Schedule().in_steps(total_steps).update_every for total_steps in (500, 5000, 10_000, 20_000, 50_000)
    ]
    assert rates == sorted(rates)
    assert rates[0] < 20


@pytest.mark.parametrize("total_steps", [500, 2000, 10_000, 117_300])
def test_updates_stay_within_a_twentieth_of_the_run(total_steps: int):
    assert Schedule().in_steps(total_steps).num_updates <= 0.05 * total_steps + 1


@pytest.mark.parametrize("name", ["search_from", "shrink_from", "settle_from"])
@pytest.mark.parametrize("value", [-0.1, -3, float("nan"), float("inf"), "half", None, True])
def test_what_is_no_time_is_refused(name: str, value: Any):
    with pytest.raises(SettingError, match=rf"^{name} must be a share of the run, [^\n]*; got [^\n]*$"):
        Schedule(**{name: value})


@pytest.mark.parametrize("name", ["search_from", "shrink_from", "first_cut_from", "settle_from"])
@pytest.mark.parametrize("value", [1, 1.0])
def test_one_could_be_a_step_or_a_share_and_is_refused(name: str, value: float):
    with pytest.raises(SettingError, match=rf"^{name}={value!r} could mean step 1 or the whole run[^\n]*$"):
        Schedule(**{name: value})


@pytest.mark.parametrize("value", [1.5, 2.0, 40.0])
def test_a_step_is_an_integer(value: float):
    with pytest.raises(SettingError, match=r"^settle_from=\S+ is not a share [^\n]* integers\.$"):
        Schedule(settle_from=value)


def test_the_smallest_steps_and_shares_are_what_they_say():
    table = Schedule(search_from=0, shrink_from=2, first_cut_from=0.02, settle_from=0.999).in_steps(1000)
    assert (table.search_from, table.shrink_from, table.first_cut_from, table.settle_from) == (0, 2, 20, 999)
    assert Schedule(search_from=0.0).in_steps(100) == Schedule(search_from=0).in_steps(100)


@pytest.mark.parametrize("value", [0, -1, 2.5, "often", True])
def test_what_is_no_interval_is_refused(value: Any):
    with pytest.raises(SettingError, match=r"^update_every must be an integer of at least 1, got [^\n]*$"):
        Schedule(update_every=value)


@pytest.mark.parametrize(
    "times",
    [
        {"search_from": 0.6},
        {"shrink_from": 0.01},
        {"shrink_from": 0.7},
        {"settle_from": 100},
    ],
)
def test_phases_out_of_order_are_refused(times: dict[str, float]):
    with pytest.raises(SettingError, match=r"^the phases are out of order: [^\n]*$"):
        Schedule(**times).in_steps(100)


@pytest.mark.parametrize("total_steps", [20, 100, 999, 10_000])
@pytest.mark.parametrize("zero_within", [1e-6, 0.02, 0.25, 1.0])
def test_what_is_left_is_zero_at_the_deadline_and_not_before(total_steps: int, zero_within: float):
    table = Schedule().in_steps(total_steps)
    strength = Strength(zero_within=zero_within)
    length, gone_at = 1.0, None
    lengths = []
    for step in range(table.settle_from, total_steps):
        length *= strength.largest_scale(table, step, decided_at=table.settle_from)
        lengths.append(length)
        if length == 0 and gone_at is None:
            gone_at = step
    steps = min(total_steps - table.settle_from, max(1, round(zero_within * total_steps)))
    assert gone_at == table.settle_from + steps - 1
    assert lengths[:steps] == pytest.approx([1 - (number + 1) / steps for number in range(steps)], abs=1e-9)
    assert all(
        strength.largest_scale(table, step, decided_at=table.settle_from) == 0
        for step in range(gone_at, total_steps)
    )


def test_the_papers_constant_strength():
    strength = Strength.constant()
    assert strength.searching == strength.settled == 10


@pytest.mark.parametrize("name", ["searching", "settled"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "ten", None])
def test_what_is_no_strength_is_refused(name: str, value: Any):
    with pytest.raises(SettingError, match=rf"^{name} must be a number of at least 0, got [^\n]*$"):
        Strength(**{name: value})


@pytest.mark.parametrize("value", [0, -0.1, 1.1, float("nan"), "soon"])
def test_what_is_no_deadline_is_refused(value: Any):
    with pytest.raises(
        SettingError, match=r"^zero_within must be a number above 0 and at most 1, got [^\n]*$"
    ):
        Strength(zero_within=value)


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan"), "low"])
def test_what_is_no_floor_is_refused(value: Any):
    with pytest.raises(SettingError, match=r"^floor must be a number of at least 0 and below 1, got [^\n]*$"):
        Strength(floor=value)


@pytest.mark.parametrize(
    "schedule", [Schedule(), Schedule.paper(), Schedule(update_every=3), Schedule(settle_from=0.9)]
)
def test_the_steps_that_are_said_to_be_enough_are_the_fewest(schedule: Schedule):
    for total_steps in (40, 150):
        enough = enough_steps(schedule, total_steps)
        assert enough is not None
        assert schedule.in_steps(enough).num_updates >= FEW_UPDATES
        assert enough == total_steps or schedule.in_steps(enough - 1).num_updates < FEW_UPDATES


@pytest.mark.parametrize("settle_from", [40, 90])
def test_points_in_steps_leave_no_length_that_is_enough(settle_from: int):
    schedule = Schedule(
        search_from=10, shrink_from=20, first_cut_from=30, settle_from=settle_from, update_every=5
    )
    assert enough_steps(schedule, 100) is None
    mixed = Schedule(search_from=0.1, shrink_from=0.2, settle_from=settle_from)
    assert enough_steps(mixed, 100) is None
    assert "total_steps=" not in str(ShortRunWarning(3, None))
