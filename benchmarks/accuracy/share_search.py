"""Which share of groups leaves the FLOPs that were asked for: takes the tries so far, gives the share to try next."""

from __future__ import annotations

import math
from collections.abc import Sequence

FIRST_POWER = 0.73
"""FLOPs left as a power of the groups left: about right for ResNets on small images."""

Try = tuple[float, float]
"""The share of groups that was left, and the share of FLOPs that this left."""


def groups_to_keep(wanted: float, tries: Sequence[Try]) -> float:
    """Between the nearest tries on both sides if there are such; else by the power that the nearest try had."""
    above = [one for one in tries if one[1] > wanted]
    below = [one for one in tries if one[1] <= wanted]
    if not above or not below:
        nearest = min(tries, key=lambda one: abs(math.log(one[1] / wanted)), default=None)
        power = FIRST_POWER if nearest is None else math.log(nearest[1]) / math.log(nearest[0])
        return wanted ** (1 / power)
    more, less = min(above, key=lambda one: one[1]), max(below, key=lambda one: one[1])
    # On logarithmic axes; never at an end, which has been tried.
    way = min(0.9, max(0.1, math.log(more[1] / wanted) / math.log(more[1] / less[1])))
    return more[0] * (less[0] / more[0]) ** way
