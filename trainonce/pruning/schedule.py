"""When a run warms up, searches, shrinks and settles, and how hard units are pulled in each phase."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, fields
from enum import Enum


class Phase(str, Enum):
    """Where a run is."""

    WARM_UP = "warm-up"
    """The model trains alone; its weights are still noise."""

    SEARCH = "search"
    """Which units go is being decided."""

    SETTLE = "settle"
    """Decided; the units that go are on their way to zero, or there."""

    SMALL = "small"
    """Cut out; the small model trains on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """When each phase of a run begins.

    Fractions of its total steps below 1, or step numbers (integers) from 1 on.
    """

    search_from: float | int = 0.05
    """The paper's T_start: before this the model trains alone."""

    shrink_from: float | int = 0.10
    """The paper's T_w: from here the units that are to go are pulled."""

    first_cut_from: float | int | None = None
    """From here half of the way (as a factor of the cost) is decided for good and cut out.

    The search goes on in what is left. None: at 20 % of the run, or as near to that as the points around it
    allow. Equal to `settle_from`: all is cut at once.
    """

    settle_from: float | int = 0.45
    """The paper's T_end: from here the decision stands; only the weights change."""

    update_every: int | None = None
    """Steps between two updates of the controller; None.

    The paper's 20, less in runs so short that the controller would starve.
    """

    def __post_init__(self) -> None:
        for setting in fields(self)[:4]:
            value = getattr(self, setting.name)
            if value is None and setting.name == "first_cut_from":
                continue
            if (
                not isinstance(value, int | float)
                or isinstance(value, bool)
                or math.isnan(value)
                or value < 0
            ):
                raise ValueError(
                    f"{setting.name} must be a fraction from 0 to 1 or a step number, got {value!r}. The "
                    "default suits most runs."
                )
            if isinstance(value, float) and value > 1:
                raise ValueError(
                    f"{setting.name} must be a fraction from 0 to 1 or a step number, got {value}. Write a "
                    "step as an integer."
                )
        if self.update_every is not None and (
            not isinstance(self.update_every, int) or self.update_every < 1
        ):
            raise ValueError(
                f"update_every must be a whole number of steps from 1 on, got {self.update_every!r}. None "
                "chooses one."
            )

    @classmethod
    def paper(cls) -> Schedule:
        """The paper's own points.

        Search from 10 %, shrink from 20 %, settle from 50 % of the run, all at once.
        """
        return cls(search_from=0.10, shrink_from=0.20, first_cut_from=0.50, settle_from=0.50)

    def in_steps(self, total_steps: int) -> Timetable:
        """The schedule as step numbers of a run of this length."""
        first = EARLY if self.first_cut_from is None else self.first_cut_from
        search, shrink, first, settle = (
            value if isinstance(value, int) else round(value * total_steps)
            for value in (self.search_from, self.shrink_from, first, self.settle_from)
        )
        if self.first_cut_from is None:
            first = min(max(first, shrink), settle)
        if not search <= shrink <= settle < total_steps or not shrink <= first <= settle:
            raise ValueError(
                f"the phases must follow each other: search from step {search}, shrink from {shrink}, first "
                f"cut from {first}, "
                f"settle from {settle}, end at {total_steps}. Change the schedule or total_steps."
            )
        every = self.update_every or min(
            LONG_RUN_EVERY, max(SHORT_RUN_EVERY, (settle - search) // ENOUGH_UPDATES)
        )
        return Timetable(total_steps, search, shrink, first, settle, every)


EARLY = 0.20
"""Share of the run at which the first cut is due unless something else is asked for."""

LONG_RUN_EVERY = 20
"""The paper's rate: the controller sees one batch of its 5 % sample where the model sees twenty."""

SHORT_RUN_EVERY = 10
"""An update costs less than a training step.

At one in ten of the 40 % of steps that search, a run takes 3 to 4 % longer.
"""

ENOUGH_UPDATES = 400

FEW_UPDATES = 50
"""With fewer than this the controller's choice is little more than what it began with."""


class ShortRunWarning(UserWarning):
    """A run in which the controller learns too seldom to move far from its starting point."""

    def __init__(self, num_updates: int, enough_steps: int | None) -> None:
        way_out = f"total_steps={enough_steps} would give enough ({FEW_UPDATES})."
        if enough_steps is None:
            way_out = (
                "a smaller update_every or a longer search in the schedule would give enough "
                f"({FEW_UPDATES})."
            )
        super().__init__(
            f"few updates: the controller learns {num_updates} times in this run, so the choice stays close "
            "to its starting point. "
            f"The budget is kept; {way_out}"
        )
        self.num_updates = num_updates
        """How often the controller learns."""
        self.enough_steps = enough_steps
        """The smallest total_steps with which it learns often enough.

        None if the schedule is in steps that leave no room.
        """


def enough_steps(schedule: Schedule, total_steps: int) -> int | None:
    """The smallest number of steps from `total_steps` on in which the controller gets enough updates.

    None if none is enough.
    """

    def is_enough(steps: int) -> bool:
        try:
            return schedule.in_steps(steps).num_updates >= FEW_UPDATES
        except ValueError:
            # A point in steps and one as a share: in a longer run they change places.
            return False

    most = 1000 * max(total_steps, FEW_UPDATES * LONG_RUN_EVERY)
    if not is_enough(most):
        return None
    return total_steps + bisect_left(range(total_steps, most), True, key=is_enough)


@dataclass(frozen=True, slots=True)
class Timetable:
    """A schedule in steps; step numbers count from 0."""

    total_steps: int
    search_from: int
    shrink_from: int
    first_cut_from: int
    """Equal to `settle_from` if all is cut at once."""

    settle_from: int
    update_every: int

    @property
    def num_updates(self) -> int:
        """How often the controller learns."""
        return len(range(self.search_from, self.settle_from, self.update_every))

    def is_searching(self, step: int) -> bool:
        """Whether the decision is still open in this step."""
        return self.search_from <= step < self.settle_from

    def search_progress(self, step: int) -> float:
        """How much of the search is over, from 0 to 1."""
        return min(1.0, max(0.0, (step - self.search_from) / max(1, self.settle_from - self.search_from)))

    def is_update(self, step: int) -> bool:
        """Whether the controller learns in this step."""
        return self.is_searching(step) and (step - self.search_from) % self.update_every == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Strength:
    """How hard units are pulled: the paper's lambda, before and after the decision.

    A unit that is at zero gets no gradient and can't come back, so while the decision is open the pull is
    gentle and ends at a floor. Once it stands, the pull is firm, and whatever is left is gone by a deadline:
    the cut has to be exact.
    """

    searching: float = 0.05
    settled: float = 10.0
    floor: float = 0.1
    """While the decision is open, no unit is pulled below this share of the mean norm in its group."""

    zero_within: float = 0.02
    """Share of the run, from the decision on, after which every unit that goes is exactly zero."""

    def __post_init__(self) -> None:
        for name in ("searching", "settled"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(
                    f"{name} must be a number from 0 on, got {value!r}. The paper's lambda is 10."
                )
        if not isinstance(self.floor, int | float) or not 0 <= self.floor < 1:
            raise ValueError(
                f"floor must be at least 0 and below 1, got {self.floor!r}. It is a share of the mean norm "
                "in a group."
            )
        if not isinstance(self.zero_within, int | float) or not 0 < self.zero_within <= 1:
            raise ValueError(
                f"zero_within must be above 0 and at most 1, got {self.zero_within!r}. It is a share of the "
                "run."
            )

    @classmethod
    def constant(cls, strength: float = 10.0) -> Strength:
        """The paper's constant lambda: units that are masked once are gone within a few steps."""
        return cls(searching=strength, settled=strength, floor=0.0, zero_within=0.25)

    def largest_scale(self, timetable: Timetable, step: int, *, decided_at: int) -> float:
        """The factor that brings what is left to zero at the deadline, in equal steps from the decision on."""
        deadline = min(
            decided_at + max(1, round(self.zero_within * timetable.total_steps)), timetable.total_steps
        )
        remaining = deadline - step
        return 1 - 1 / remaining if remaining > 1 else 0.0
