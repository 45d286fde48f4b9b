"""Where the time of a step goes.

Takes laps, gives a table of medians by kind of step, and shares of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.loops import Lap
from benchmarks.sheet import table

_PARTS = {
    "forward and backward": "forward_backward",
    "optimizer": "optimizer",
    "projection": "projection",
    "controller": "controller",
}


def breakdown(plain: Sequence[Lap], ours: Sequence[Lap]) -> list[str]:
    """The median step of the plain loop and of each kind of ours, in milliseconds, as Markdown."""
    plain_optimizer = median(lap.optimizer for lap in plain)
    rows = [("plain loop", len(plain), *_milliseconds(plain), "-")]
    for phase, is_update in dict.fromkeys((lap.phase, lap.is_update) for lap in ours):
        laps = [lap for lap in ours if (lap.phase, lap.is_update) == (phase, is_update)]
        share = median(lap.projection for lap in laps) / plain_optimizer
        name = f"ours, {phase}, controller learns" if is_update else f"ours, {phase}"
        rows.append((name, len(laps), *_milliseconds(laps), f"{share:.2f}"))
    header = (
        "step",
        "how many",
        "whole",
        "forward, backward",
        "optimizer",
        "projection",
        "pruner.step",
        "projection / optimizer step",
    )
    return table(header, rows)


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
