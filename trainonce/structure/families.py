"""Equal widths: groups of the same role in repeated blocks become families that keep equally many steps.

It is a constraint on how many channels stay, not a tie: each group keeps channels of its own choice. Where a
model is built from a configuration, families are what one setting gives the size of, and what no setting can
say stays whole: then the small model is an ordinary one of its kind.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import ModelError
from trainonce.messages.plain_text import shorten
from trainonce.structure.axes import axis_cuts
from trainonce.structure.channels import AttributeChange, AxisCut, ChannelGroup
from trainonce.structure.configuration import Configuration, Setting, looked_into
from trainonce.structure.partition import Partition
from trainonce.structure.settings import SettingChange

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

Axis = tuple[str, int]
"""A tensor, and an axis of it."""

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
            return _by_settings(partition, found)
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


def settings_for(
    partition: Partition,
    alive: Mapping[str, Tensor],
    cuts: tuple[AxisCut, ...],
    attributes: tuple[AttributeChange, ...],
) -> tuple[SettingChange, ...]:
    """What changes in the configuration of the model; nothing where widths don't agree."""
    configuration = partition.configuration
    if configuration is None or not configuration.settings:
        return ()
    widths: dict[str, set[int]] = {}
    for group in partition.groups:
        if group.family is not None:
            widths.setdefault(group.family, set()).add(int(alive[group.name].sum()) // group.step)
    if any(len(found) > 1 for found in widths.values()):
        return ()
    return configuration.solved(partition.shapes, cuts, attributes)


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
            _make_family(groups, members)
    return replace(partition, groups=tuple(groups))


def _role(group: ChannelGroup) -> Any:
    # Blocks at an end may have neighbors that others lack (a head, a stem): the writer alone says the role.
    return _NUMBER.sub("*", group.name), group.num_channels, group.width


def _make_family(groups: list[ChannelGroup], members: Sequence[int]) -> None:
    """Let groups change together; all of them stay whole if one can't be cut."""
    stuck = next((groups[number] for number in members if groups[number].kept_because is not None), None)
    if stuck is not None:
        reason = f"equal widths: {stuck.name or 'the model'} has the same role and can't be cut"
        _keep(groups, members, reason)
        return
    num_steps = math.gcd(*(groups[number].num_channels // groups[number].step for number in members))
    if num_steps == 1:
        _keep(groups, members, "equal widths: the sizes that must agree have no common divisor")
        return
    for number in members:
        group = groups[number]
        groups[number] = replace(group, step=group.num_channels // num_steps, family=groups[members[0]].name)


def _keep(groups: list[ChannelGroup], members: Sequence[int], reason: str) -> None:
    for number in members:
        if groups[number].kept_because is None:
            groups[number] = replace(groups[number], kept_because=reason, step=1, family=None)


def _by_settings(partition: Partition, configuration: Configuration) -> Partition:
    """Families of groups whose sizes one setting gives, as far as the configuration can say them."""
    on_axis = _groups_on_axes(partition)
    groups = list(partition.groups)
    while True:
        free = _free_settings(configuration, groups, on_axis)
        unsaid = _unsaid(configuration, free, groups, on_axis)
        for number, reason in unsaid.items():
            _keep(groups, [number], reason)
        if not unsaid:
            break
    for members in _families(free, on_axis, groups):
        _make_family(groups, members)
    configuration = _with_epsilons(partition, configuration, groups, on_axis)
    return _proven(replace(partition, groups=tuple(groups), configuration=configuration))


def _groups_on_axes(partition: Partition) -> dict[Axis, set[int]]:
    found: dict[Axis, set[int]] = {}
    for number, group in enumerate(partition.groups):
        for part in group.slices:
            found.setdefault((part.tensor, part.axis), set()).add(number)
    return found


def _can_shrink(axis: Axis, groups: Sequence[ChannelGroup], on_axis: Mapping[Axis, set[int]]) -> bool:
    return any(groups[number].kept_because is None for number in on_axis.get(axis, ()))


def _free_settings(
    configuration: Configuration, groups: Sequence[ChannelGroup], on_axis: Mapping[Axis, set[int]]
) -> list[Setting]:
    """The settings that only give sizes of axes that can be cut: the others must stay as they are."""
    return [
        setting
        for setting in configuration.settings
        if setting.axes
        and setting.must_stay is None
        and all(_can_shrink(axis, groups, on_axis) for axis in setting.axes)
    ]


def _unsaid(
    configuration: Configuration,
    free: Sequence[Setting],
    groups: Sequence[ChannelGroup],
    on_axis: Mapping[Axis, set[int]],
) -> dict[int, str]:
    """Groups with an axis whose size no free setting gives, and why."""
    said = {axis for setting in free for axis in setting.axes}
    found: dict[int, str] = {}
    for axis, numbers in on_axis.items():
        if axis in said:
            continue
        by = next((setting for setting in configuration.settings if axis in setting.axes), None)
        reason = f"equal widths: no setting of {configuration.name} gives this size"
        if by is not None:
            other = by.must_stay or next(
                tensor for tensor, at in by.axes if not _can_shrink((tensor, at), groups, on_axis)
            )
            reason = (
                f"equal widths: {configuration.name}.{by.path} gives this size and that of {other}, which "
                "can't be cut"
            )
            if by.must_stay:
                reason = f"equal widths: {other}, a number that the model computes with, follows this size"
        found |= {number: reason for number in numbers if groups[number].kept_because is None}
    return found


def _families(
    free: Sequence[Setting], on_axis: Mapping[Axis, set[int]], groups: Sequence[ChannelGroup]
) -> list[list[int]]:
    """Groups that can be cut, together with those that share a setting with them."""
    families: list[set[int]] = []
    for setting in free:
        merged = {
            number for axis in setting.axes for number in on_axis[axis] if groups[number].kept_because is None
        }
        for family in [family for family in families if family & merged]:
            families.remove(family)
            merged |= family
        families.append(merged)
    return [sorted(family) for family in families]


def _with_epsilons(
    partition: Partition,
    configuration: Configuration,
    groups: list[ChannelGroup],
    on_axis: Mapping[Axis, set[int]],
) -> Configuration:
    """Note which settings norms add; groups under norms whose eps can't be said stay whole."""
    epsilons: dict[str, str] = {}
    for norm in partition.norms:
        like = f"{norm.module}.{norm.eps}".lstrip(".")
        said_by = [
            setting
            for setting in configuration.settings
            if type(setting.value) is float and ("number", like, -1) in setting.slopes
        ]
        members = [
            number
            for number in on_axis.get((norm.tensor, norm.axis), ())
            if groups[number].kept_because is None
        ]
        if not members:
            continue
        family = {groups[number].family for number in members}
        together = {
            f"{other.module}.{other.eps}".lstrip(".")
            for other in partition.norms
            if on_axis.get((other.tensor, other.axis), set()) & set(members)
        }
        strangers = [
            key[1]
            for setting in said_by
            for key in setting.slopes
            if key[0] == "number" and key[1] not in together
        ]
        if len(said_by) == 1 and not strangers:
            epsilons[said_by[0].path] = like
            continue
        reason = f"equal widths: the eps of {norm.module} is no setting of {configuration.name}"
        if said_by:
            reason = (
                f"equal widths: {configuration.name}.{said_by[0].path} is also the eps of "
                f"{strangers[0].rpartition('.')[0]}, which must stay"
            )
        _keep(
            groups,
            [
                n
                for n, group in enumerate(groups)
                if n in members or (group.family in family and None not in family)
            ],
            reason,
        )
    return replace(configuration, epsilons=epsilons)


def _proven(partition: Partition) -> Partition:
    """The partition with only those families that the configuration can say, tried out on each."""
    for _ in range(2):
        names = list(dict.fromkeys(group.family for group in partition.prunable_groups))
        if _can_say(partition, names):
            return partition
        groups = list(partition.groups)
        failed = [name for name in names if not _can_say(partition, [name])]
        reason = f"equal widths: {partition.configuration.name} can't say this size alone"
        members = [
            n
            for n, group in enumerate(groups)
            if group.family in (failed or names) and group.kept_because is None
        ]
        _keep(groups, members, reason)
        partition = replace(partition, groups=tuple(groups))
    return partition


def _can_say(partition: Partition, families: Sequence[str | None]) -> bool:
    """Whether a model built with the settings of some cut has the shapes that it leaves."""
    alive = {group.name: torch.ones(group.num_channels, dtype=torch.bool) for group in partition.groups}
    for group in partition.prunable_groups:
        if group.family in families:
            num_steps = group.num_channels // group.step
            # Each family loses another share, so that no two sizes agree by chance.
            share = 0.3 + 0.4 * families.index(group.family) / len(families)
            alive[group.name][group.step * max(1, round(share * num_steps)) :] = False
    cuts = axis_cuts(partition, alive)
    attributes = partition.sizes.changes(torch.cat([*alive.values(), torch.ones(0, dtype=torch.bool)]))
    changes = settings_for(partition, alive, cuts, attributes)
    shapes = {name: list(shape) for name, shape in partition.shapes.items()}
    for cut in cuts:
        shapes[cut.tensor][cut.axis] = len(cut.kept)
    configuration = partition.configuration
    assert configuration is not None, "only partitions with one come here"
    return configuration.gives(changes, {name: tuple(shape) for name, shape in shapes.items()})
