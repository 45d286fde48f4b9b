"""How sure an accuracy is: takes percentages measured on so many samples, gives 95 % intervals.

One accuracy gets Wilson's score interval, a difference Newcombe's, which is made of two of those. Unlike
`p +- 1.96 sqrt(p (1 - p) / n)`, both hold at 100 %, too. Two models that are measured on the same samples
differ less than independent ones, so the interval of a difference is rather too wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

QUANTILE = 1.959964
"""Of the normal distribution, for 95 % in the middle."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, in percent or points."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Change:
    """One accuracy minus another."""

    points: float
    num_right: int | None
    """How many more samples are right; None if it is not known how many there are."""
    num_samples: int | None
    interval: Interval | None

    @property
    def is_noise(self) -> bool:
        """Whether no difference at all would be as plausible."""
        return self.interval is not None and self.interval.low <= 0 <= self.interval.high


def accuracy_interval(percent: float, num_samples: int) -> Interval:
    """Where the accuracy on more samples of the same kind would be.

    Wilson:  (p + z^2 / 2n  +-  z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
    """
    share, z2 = min(1.0, max(0.0, percent / 100)), QUANTILE**2
    middle = share + z2 / (2 * num_samples)
    spread = QUANTILE * math.sqrt(share * (1 - share) / num_samples + z2 / (4 * num_samples**2))
    scale = 100 / (1 + z2 / num_samples)
    return Interval(max(0.0, scale * (middle - spread)), min(100.0, scale * (middle + spread)))


def accuracy_change(
    percent: float, before: float, *, num_samples: int | None, num_before: int | None
) -> Change:
    """How far an accuracy is from another one, in points and, on the same samples, in samples.

    Newcombe, with Wilson's intervals (l, u) and (l', u'):

        p - p' - sqrt((p - l)^2 + (u' - p')^2)   to   p - p' + sqrt((u - p)^2 + (p' - l')^2)
    """
    points = percent - before
    if not num_samples or not num_before or not math.isfinite(points):
        return Change(points, None, None, None)
    mine, theirs = accuracy_interval(percent, num_samples), accuracy_interval(before, num_before)
    interval = Interval(
        points - math.hypot(percent - mine.low, theirs.high - before),
        points + math.hypot(mine.high - percent, before - theirs.low),
    )
    if num_samples != num_before:
        return Change(points, None, None, interval)
    num_right = round(percent * num_samples / 100) - round(before * num_before / 100)
    return Change(points, num_right, num_samples, interval)


def counted(number: int, noun: str) -> str:
    """`1 image`, `2 images`."""
    return f"{number:,} {noun}" if abs(number) == 1 else f"{number:,} {noun}s"


def signed_count(change: Change, noun: str) -> str:
    """Such as `+1 image of 360`; empty if it is not known."""
    if change.num_right is None or change.num_samples is None:
        return ""
    sign = "+" if change.num_right >= 0 else ""
    return f"{sign}{counted(change.num_right, noun)} of {change.num_samples:,}"


def interval_words(interval: Interval, *, signed: bool = False) -> str:
    """Such as `95 % interval -4.9 to +1.0`."""
    low, high = (f"{value:+.1f}" if signed else f"{value:.1f}" for value in (interval.low, interval.high))
    return f"95 % interval {low} to {high}"
