"""Equal widths: groups of the same role in repeated blocks become families that keep equally many steps.

It is a constraint on how many channels stay, not a tie: each group keeps channels of its own choice.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainonce.errors import ModelError
from trainonce.messages.plain_text import shorten
from trainonce.structure.agreement import by_settings
from trainonce.structure.channels import ChannelGroup
from trainonce.structure.configuration import looked_into
from trainonce.structure.equal_widths import make_family
from trainonce.structure.partition import Partition

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

Uniform = bool | Sequence[str]
"""True: all groups; or patterns on the names of those meant."""


def with_families(partition: Partition, uniform: Uniform) -> Partition:
    """The partition with equal widths; the same one if none are asked for.

    ModelError for a pattern that matches nothing.
    """
    check_uniform(uniform)
    if uniform is False or (not isinstance(uniform, bool) and not uniform):
        return partition
    if uniform is not True:
        return _by_role(partition, _matched(partition, uniform))
    if partition.configuration is not None and partition.configuration.settings:
        # These were looked for before.
        return partition
    if partition.configuration is not None:
        found = looked_into(partition.configuration, partition.shapes)
        if found is not None:
            return by_settings(partition, found)
    everything = _by_role(partition, range(len(partition.groups)))
    if partition.configuration is None:
        return everything
    words = (
        f"its {partition.configuration.name} builds another model, so only widths in repeated blocks agree"
    )
    return replace(everything, notes=(*partition.notes, words))


def check_uniform(uniform: Any) -> None:
    """Raise ModelError unless it is True, False or a list of patterns."""
    if isinstance(uniform, bool):
        return
    if isinstance(uniform, str) or not (
        isinstance(uniform, Sequence) and all(isinstance(pattern, str) for pattern in uniform)
    ):
        raise ModelError(
            f"uniform must be True, False or a list of patterns, got {shorten(uniform)}. For example: "
            "uniform=['*.mlp*']."
        )


def _matched(partition: Partition, patterns: Sequence[str]) -> list[int]:
    names = [group.name for group in partition.groups]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ModelError(
                f"uniform={shorten(pattern)} matches no group of this model. Use names that "
                "trainonce.inspect prints, with * for any part."
            )
    return [
        number
        for number, name in enumerate(names)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _by_role(partition: Partition, numbers: Sequence[int]) -> Partition:
    """Families of groups that the same layers of repeated blocks write and read."""
    roles: dict[Any, list[int]] = {}
    for number in numbers:
        roles.setdefault(_role(partition.groups[number]), []).append(number)
    groups = list(partition.groups)
    for members in roles.values():
        if len(members) > 1:
            make_family(groups, members)
    return replace(partition, groups=tuple(groups))


def _role(group: ChannelGroup) -> Any:
    # Blocks at an end may have neighbors that others lack (a head, a stem): the writer alone says the role.
    return _NUMBER.sub("*", group.name), group.num_channels, group.width
