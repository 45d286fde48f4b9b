"""Where the time of a step goes.

Takes laps, gives a table of medians by kind of step, and shares of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.sheets.sheet import table
from benchmarks.timing.loops import Lap

_PARTS = {
    "forward and backward": "forward_backward",
    "optimizer": "optimizer",
    "projection": "projection",
    "controller": "controller",
}


_HEADER = (
    *("step", "how many", "whole", "forward, backward", "optimizer", "projection", "pruner.step"),
    "projection / optimizer step",
)


def breakdown(plain: Sequence[Lap], ours: Sequence[Lap]) -> list[str]:
    """The median step of the plain loop and of each kind of ours, in milliseconds, as Markdown."""
    plain_optimizer = median(lap.optimizer for lap in plain)
    rows = [("plain loop", len(plain), *_milliseconds(plain), "-")]
    for phase, is_update in dict.fromkeys((lap.phase, lap.is_update) for lap in ours):
        laps = [lap for lap in ours if (lap.phase, lap.is_update) == (phase, is_update)]
        share = median(lap.projection for lap in laps) / plain_optimizer
        name = f"ours, {phase}, controller learns" if is_update else f"ours, {phase}"
        rows.append((name, len(laps), *_milliseconds(laps), f"{share:.2f}"))
    return table(_HEADER, rows)


Kind = tuple[str, bool]
"""The phase of one of our steps, and whether the controller learned in it."""


def by_medians(seconds: Sequence[float], kinds: Sequence[Kind]) -> float:
    """The median step of each kind, times how many there are.

    The plain loop's steps are of the kind of ours beside them.
    """
    total = 0.0
    for kind in set(kinds):
        of_kind = [one for one, its_kind in zip(seconds, kinds, strict=True) if its_kind == kind]
        total += len(of_kind) * median(of_kind)
    return total


def shares(laps: Sequence[Lap]) -> str:
    """Of all steps' time, in words."""
    total = sum(lap.wall for lap in laps)
    return ", ".join(
        f"{words} {sum(getattr(lap, part) for lap in laps) / total:.1%}" for words, part in _PARTS.items()
    )


def _milliseconds(laps: Sequence[Lap]) -> tuple[str, ...]:
    return tuple(
        f"{1000 * median(getattr(lap, part) for lap in laps):.2f}" for part in ("wall", *_PARTS.values())
    )
