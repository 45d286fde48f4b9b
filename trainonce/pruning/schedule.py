"""When a run warms up, searches, shrinks and settles, and how hard units are pulled in each phase."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

from trainonce.errors import SettingError
from trainonce.messages.limits import Limits, check_value
from trainonce.messages.plain_text import shorten


class Phase(str, Enum):
    """The phase a run is in."""

    WARM_UP = "warm-up"
    """The model just trains; its weights are still noise."""

    SEARCH = "search"
    """The policy is choosing which units go."""

    SETTLE = "settle"
    """The choice is final; the units that go are on their way to zero, or there."""

    SMALL = "small"
    """The model has its final size and trains on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """When each phase of a run begins.

    A float from 0 up to but not including 1 is a share of the run, an int is a step number. `1` and `1.0` are
    refused, because they are too easy to confuse.
    """

    search_from: float | int = 0.05
    """The paper's T_start: until here the model just trains."""

    shrink_from: float | int = 0.10
    """The paper's T_w: from here on, units that would be dropped are pulled toward zero."""

    first_cut_from: float | int | None = None
    """When to make the first of two cuts, halfway to the budget (as a factor of the cost).

    The search continues in what is left. None: at 20 % of the run, or as close to that as `shrink_from` and
    `settle_from` allow. Equal to `settle_from`: one cut only.
    """

    settle_from: float | int = 0.45
    """The paper's T_end: from here on the choice is final and only the weights train."""

    update_every: int | None = None
    """Steps between two updates of the controller; None: the paper's 20, fewer in short runs."""

    def __post_init__(self) -> None:
        for name in ("search_from", "shrink_from", "first_cut_from", "settle_from"):
            value = getattr(self, name)
            if value is not None or name != "first_cut_from":
                _check_point(name, value)
        if self.update_every is not None:
            check_value("update_every", self.update_every, _STEPS, "It is in steps; None picks a number.")

    @classmethod
    def paper(cls) -> Schedule:
        """The paper's schedule: search from 10 %, pull from 20 %, one cut from 50 % of the run."""
        return cls(search_from=0.10, shrink_from=0.20, first_cut_from=0.50, settle_from=0.50)

    def in_steps(self, total_steps: int) -> Timetable:
        """The schedule in step numbers, for a run of this length."""
        first = EARLY if self.first_cut_from is None else self.first_cut_from
        search, shrink, first, settle = (
            value if isinstance(value, int) else round(value * total_steps)
            for value in (self.search_from, self.shrink_from, first, self.settle_from)
        )
        if self.first_cut_from is None:
            first = min(max(first, shrink), settle)
        if not search <= shrink <= settle < total_steps or not shrink <= first <= settle:
            raise SettingError(
                f"the phases are out of order: search from step {search}, shrink from {shrink}, first cut "
                f"from {first}, settle from {settle}, end at {total_steps}. Change the schedule or "
                "total_steps."
            )
        every = self.update_every or min(
            LONG_RUN_EVERY, max(SHORT_RUN_EVERY, (settle - search) // ENOUGH_UPDATES)
        )
        return Timetable(total_steps, search, shrink, first, settle, every)


def _check_point(name: str, value: object) -> None:
    if not isinstance(value, int | float) or not _POINT.allows(value):
        raise SettingError(
            f"{name} must be a share of the run, as a float below 1, or a step number, as an int; got "
            f"{shorten(value)}. The default suits most runs."
        )
    if value == 1:
        raise SettingError(
            f"{name}={value!r} could mean step 1 or the whole run. Use a share below 1, such as 0.45, or a "
            "step number: 0, or 2 and up."
        )
    if isinstance(value, float) and value > 1:
        raise SettingError(f"{name}={value!r} is not a share of the run. Write step numbers as integers.")


_STEPS = Limits(kind=int, at_least=1)
_POINT = _LAMBDA = Limits(kind=float, at_least=0)
_FLOOR = Limits(kind=float, at_least=0, below=1)
_SHARE = Limits(kind=float, above=0, at_most=1)

EARLY = 0.20
"""The share of the run after which the first cut is made by default."""

LONG_RUN_EVERY = 20
"""The paper's rate: with 5 % of the data, the controller sees one batch for every twenty of the model's."""

SHORT_RUN_EVERY = 10
"""An update costs less than a training step: one in ten during the search makes a run 3 to 4 % longer."""

ENOUGH_UPDATES = 400

FEW_UPDATES = 50
"""With fewer updates, the controller's choice stays close to where it started."""


class ShortRunWarning(UserWarning):
    """A run too short for the controller to move far from its starting point."""

    def __init__(self, num_updates: int, enough_steps: int | None) -> None:
        way_out = (
            "a smaller update_every or a longer search"
            if enough_steps is None
            else f"total_steps={enough_steps}"
        )
        super().__init__(
            f"few updates: the controller gets {num_updates} in this run, so its choice stays close to its "
            f"starting point. The budget is still met; {way_out} would give it enough ({FEW_UPDATES})."
        )
        self.num_updates = num_updates
        """How many updates the controller gets."""
        self.enough_steps = enough_steps
        """The smallest total_steps that gives it enough; None if the schedule leaves no room."""


def enough_steps(schedule: Schedule, total_steps: int) -> int | None:
    """The smallest run of at least `total_steps` that gives the controller enough updates, or None."""

    def is_enough(steps: int) -> bool:
        try:
            return schedule.in_steps(steps).num_updates >= FEW_UPDATES
        except SettingError:
            # One point in steps, another as a share: in a longer run they swap places.
            return False

    most = 1000 * max(total_steps, FEW_UPDATES * LONG_RUN_EVERY)
    if not is_enough(most):
        return None
    return total_steps + bisect_left(range(total_steps, most), True, key=is_enough)


@dataclass(frozen=True, slots=True)
class Timetable:
    """A schedule in steps, counted from 0."""

    total_steps: int
    search_from: int
    shrink_from: int
    first_cut_from: int
    """Equal to `settle_from` if there is only one cut."""

    settle_from: int
    update_every: int

    @property
    def num_updates(self) -> int:
        """How many updates the controller gets."""
        return len(range(self.search_from, self.settle_from, self.update_every))

    def is_searching(self, step: int) -> bool:
        """Whether the policy is still choosing in this step."""
        return self.search_from <= step < self.settle_from

    def search_progress(self, step: int) -> float:
        """How much of the search is over, from 0 to 1."""
        return min(1.0, max(0.0, (step - self.search_from) / max(1, self.settle_from - self.search_from)))

    def is_update(self, step: int) -> bool:
        """Whether the controller is updated in this step."""
        return self.is_searching(step) and (step - self.search_from) % self.update_every == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Strength:
    """How hard units are pulled toward zero: the paper's lambda, before and after the decision.

    A unit at zero gets no gradient and can't come back, so during the search the pull is gentle and stops at
    a floor. Once the masks are decided the pull is strong, and dropped units are exactly zero by a deadline:
    only then is the cut exact.
    """

    searching: float = 0.05
    """Lambda while the policy is still choosing."""

    settled: float = 10.0
    """Lambda for units that are dropped for good."""

    floor: float = 0.1
    """During the search, no unit is pulled below this share of the mean norm in its group."""

    zero_within: float = 0.02
    """Dropped units are exactly zero at most this share of the run after the decision."""

    hand_over: bool = False
    """Zero dropped units right at the decision, and let the layers that read them make up for it by least
    squares on one batch. Less is lost at the cut; after training on, it made results no better. Needs the
    loss in `Pruner.step`; without it, or where it doesn't help, units are pulled.
    """

    def __post_init__(self) -> None:
        for name in ("searching", "settled"):
            check_value(name, getattr(self, name), _LAMBDA, "The paper's lambda is 10.")
        check_value("floor", self.floor, _FLOOR, "It is a share of the mean norm in a group.")
        check_value("zero_within", self.zero_within, _SHARE, "It is a share of the run.")
        check_value("hand_over", self.hand_over, Limits(kind=bool))

    @classmethod
    def constant(cls, strength: float = 10.0) -> Strength:
        """The paper's constant lambda: a unit that is masked once is at zero within a few steps."""
        return cls(searching=strength, settled=strength, floor=0.0, zero_within=0.25)

    def largest_scale(self, timetable: Timetable, step: int, *, decided_at: int) -> float:
        """The factor that brings units to zero at the deadline, in equal steps from the decision on."""
        deadline = min(
            decided_at + max(1, round(self.zero_within * timetable.total_steps)), timetable.total_steps
        )
        remaining = deadline - step
        return 1 - 1 / remaining if remaining > 1 else 0.0
