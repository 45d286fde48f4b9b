"""Which groups a configuration can speak of: families of those whose sizes one setting gives.

What no setting can say stays whole: then the small model is an ordinary one of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trainonce.structure.axes import axis_cuts
from trainonce.structure.channels import AttributeChange, AxisCut, ChannelGroup
from trainonce.structure.configuration import Configuration, Setting
from trainonce.structure.equal_widths import keep_whole, make_family
from trainonce.structure.partition import Partition
from trainonce.structure.settings import SettingChange

Axis = tuple[str, int]
"""A tensor, and an axis of it."""


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


def by_settings(partition: Partition, configuration: Configuration) -> Partition:
    """Families of groups whose sizes one setting gives, as far as the configuration can say them."""
    on_axis = _groups_on_axes(partition)
    groups = list(partition.groups)
    while True:
        free = _free_settings(configuration, groups, on_axis)
        unsaid = _unsaid(configuration, free, groups, on_axis)
        for number, reason in unsaid.items():
            keep_whole(groups, [number], reason)
        if not unsaid:
            break
    for members in _families(free, on_axis, groups):
        make_family(groups, members)
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
        keep_whole(
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
    """The partition with only those families that the configuration can say, tried out.

    Two that it can only say together (a width that heads must divide) become one.
    """
    names = _names(partition)
    stuck = [name for name in names if not _says_alone(partition, name)]
    while stuck:
        name = stuck.pop(0)
        for other in [*stuck, *(other for other in names if other not in stuck and other != name)]:
            merged = _merged(partition, name, other)
            family = next((group.family for group in merged.groups if group.family in (name, other)), None)
            if family is not None and _says_alone(merged, family):
                partition, stuck = merged, [left for left in stuck if left != other]
                break
        else:
            partition = _without(partition, [name])
    return partition if _can_say(partition, _names(partition)) else _without(partition, _names(partition))


def _names(partition: Partition) -> list[str]:
    return list(dict.fromkeys(group.family for group in partition.prunable_groups if group.family))


def _merged(partition: Partition, one: str, other: str) -> Partition:
    groups = list(partition.groups)
    members = [number for number, group in enumerate(groups) if group.family in (one, other)]
    make_family(groups, members)
    return replace(partition, groups=tuple(groups))


def _without(partition: Partition, families: Sequence[str]) -> Partition:
    configuration = partition.configuration
    assert configuration is not None, "only partitions with one come here"
    groups = list(partition.groups)
    members = [number for number, group in enumerate(groups) if group.family in families]
    keep_whole(groups, members, f"equal widths: {configuration.name} can't say this size alone")
    return replace(partition, groups=tuple(groups))


def _says_alone(partition: Partition, family: str) -> bool:
    """Whether the configuration can say some widths of one family, with all else whole."""
    return all(_can_say(partition, [family], share) for share in (0.99, 0.65, 0.3))


def _can_say(partition: Partition, families: Sequence[str], share: float | None = None) -> bool:
    """Whether a model built with the settings of some cut has the shapes that it leaves."""
    configuration = partition.configuration
    assert configuration is not None, "only partitions with one come here"
    alive = {group.name: torch.ones(group.num_channels, dtype=torch.bool) for group in partition.groups}
    for group in partition.prunable_groups:
        if group.family in families:
            num_steps = group.num_channels // group.step
            # Each family loses another share, so that no two sizes agree by chance.
            kept = 0.3 + 0.4 * families.index(group.family) / len(families) if share is None else share
            alive[group.name][group.step * min(max(1, round(kept * num_steps)), num_steps - 1) :] = False
    cuts = axis_cuts(partition, alive)
    attributes = partition.sizes.changes(torch.cat([*alive.values(), torch.ones(0, dtype=torch.bool)]))
    changes = settings_for(partition, alive, cuts, attributes)
    shapes = {name: list(shape) for name, shape in partition.shapes.items()}
    for cut in cuts:
        shapes[cut.tensor][cut.axis] = len(cut.kept)
    return configuration.gives(changes, {name: tuple(shape) for name, shape in shapes.items()})
