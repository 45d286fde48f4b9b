"""Groups made into families, which keep equally many steps, or kept whole where that can't be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from trainonce.structure.channels import ChannelGroup


def make_family(groups: list[ChannelGroup], members: Sequence[int]) -> None:
    """Let groups change together; all of them stay whole if one can't be cut."""
    stuck = next((groups[number] for number in members if groups[number].kept_because is not None), None)
    if stuck is not None:
        reason = f"equal widths: {stuck.name or 'the model'} has the same role and can't be cut"
        keep_whole(groups, members, reason)
        return
    num_steps = math.gcd(*(groups[number].num_channels // groups[number].step for number in members))
    if num_steps == 1:
        keep_whole(groups, members, "equal widths: the sizes that must agree have no common divisor")
        return
    for number in members:
        group = groups[number]
        groups[number] = replace(group, step=group.num_channels // num_steps, family=groups[members[0]].name)


def keep_whole(groups: list[ChannelGroup], members: Sequence[int], reason: str) -> None:
    """Keep those of these groups that could be cut."""
    for number in members:
        if groups[number].kept_because is None:
            groups[number] = replace(groups[number], kept_because=reason, step=1, family=None)
