"""How many groups leave the FLOPs that were asked for.

Takes the tries so far, gives the number to try next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FIRST_POWER = 0.73
"""FLOPs left as a power of the groups left: about right for ResNets on small images."""


@dataclass(frozen=True, slots=True)
class Try:
    """What came of keeping so many groups."""

    num_kept: int
    flops: float
    """Share that was left."""


def first_share(wanted: float) -> float:
    """The share of groups that leaves about this share of the FLOPs, when nothing has been tried."""
    return wanted ** (1 / FIRST_POWER)


def next_number(wanted: float, tries: Sequence[Try], num_groups: int) -> int | None:
    """Between the closest tries on both sides of the goal, or beyond all; None.

    Neighbours lie on both sides, so that none fits.
    """
    above = [one for one in tries if one.flops > wanted]
    below = [one for one in tries if one.flops <= wanted]
    if above and below:
        pairs = [(more, less) for more in above for less in below]
        more, less = min(pairs, key=lambda pair: abs(pair[0].num_kept - pair[1].num_kept))
        low, high = sorted((more.num_kept, less.num_kept))
        way = math.log(more.flops / wanted) / math.log(more.flops / less.flops)
        guess = more.num_kept * (less.num_kept / more.num_kept) ** min(0.8, max(0.2, way))
        return min(high - 1, max(low + 1, round(guess))) if high - low > 1 else None
    nearest = min(tries, key=lambda one: abs(math.log(one.flops / wanted)))
    power = math.log(nearest.flops) / math.log(nearest.num_kept / num_groups)
    guess = round(num_groups * wanted ** (1 / power))
    if above:
        return max(1, min(guess, min(one.num_kept for one in tries) - 1))
    return min(num_groups - 1, max(guess, max(one.num_kept for one in tries) + 1))


def not_below(wanted: float, tries: Sequence[Try]) -> Try:
    """The try to fall back on where none fits: the nearest that does not have less than was asked for."""
    return min((one for one in tries if one.flops > wanted), key=lambda one: one.flops)
