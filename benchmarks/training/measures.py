"""What a regime ranks its runs by, and how far one contender is ahead of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

Results = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a result."""

    key: str
    words: str
    digits: int = 2
    is_lower_better: bool = False
    of_dense: bool = False
    """Differences are percent of the other's number instead of points."""

    def of(self, result: Mapping[str, Any]) -> float:
        return result[self.key]

    def ahead(self, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
        """How much better `mine` is; in points, or in percent of theirs."""
        found = self.of(theirs) - self.of(mine) if self.is_lower_better else self.of(mine) - self.of(theirs)
        return 100 * found / self.of(theirs) if self.of_dense else found

    def said(self, number: float) -> str:
        return f"{number:.{self.digits}f}"


ACCURACY = Measure("accuracy", "accuracy, %")
BITS = Measure("bits_per_byte", "bits per byte", digits=4, is_lower_better=True, of_dense=True)

_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Two-sided 95 % points of Student's t for 1 to 9 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Lead:
    """How far ahead on each seed that both have, in the order of the seeds."""

    of_seeds: tuple[float, ...]

    @property
    def points(self) -> float:
        """In the mean."""
        return mean(self.of_seeds)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the true mean lies with 95 % confidence, by Student's t; None with one seed."""
        count = len(self.of_seeds)
        if count < 2:
            return None
        reach = _STUDENT[min(count - 1, len(_STUDENT)) - 1] * stdev(self.of_seeds) / count**0.5
        return self.points - reach, self.points + reach

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side."""
        return self.interval is not None and self.interval[0] * self.interval[1] > 0


def lead_of(results: Results, others: Results, measure: Measure = ACCURACY) -> Lead | None:
    """None where they have no seed in common."""
    mine, theirs = (
        {result["configuration"]["seed"]: result for result in each} for each in (results, others)
    )
    common = sorted(mine.keys() & theirs.keys())
    return Lead(tuple(measure.ahead(mine[seed], theirs[seed]) for seed in common)) if common else None


def said(lead: Lead | None) -> str:
    """The mean and, where there are several, what it is the mean of: a lead that changes its sign is none."""
    if lead is None:
        return "-"
    each = ", ".join(f"{points:+.2f}" for points in lead.of_seeds)
    return f"{lead.points:+.2f} ({each})" if len(lead.of_seeds) > 1 else f"{lead.points:+.2f} (1 seed)"


def said_interval(lead: Lead | None) -> str:
    """From and to."""
    found = None if lead is None else lead.interval
    return "-" if found is None else f"{found[0]:+.2f} to {found[1]:+.2f}"


def said_spread(numbers: Sequence[float], digits: int = 2) -> str:
    """Smallest, largest and standard deviation of several seeds."""
    if len(numbers) < 2:
        return "-"
    low, high, deviation = (f"{number:.{digits}f}" for number in (min(numbers), max(numbers), stdev(numbers)))
    return f"{low} to {high}, sd {deviation}"
