"""The units that a run may drop, numbered through all groups, and the rows of the model's parameters that belong to each.

A unit is what can be cut alone: one channel, or one head. All that learns, pulls or counts works on vectors over units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainonce.channels import ChannelGroup, Partition, Role
from trainonce.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Positions on one axis of one parameter, and the unit that each belongs to."""

    tensor: str
    axis: int
    positions: Tensor
    units: Tensor

    def where(self, chosen: Tensor) -> Rows:
        """Some of the rows: one boolean each."""
        return Rows(self.tensor, self.axis, self.positions[chosen], self.units[chosen])

    def to(self, device: torch.device) -> Rows:
        """The same rows, their numbers on a device."""
        return Rows(self.tensor, self.axis, self.positions.to(device), self.units.to(device))

    def after(self, plan: Plan) -> Rows:
        """The rows that stay, where they stand once the plan has been carried out."""
        kept = next((cut.kept for cut in plan.cuts if (cut.tensor, cut.axis) == (self.tensor, self.axis)), None)
        if kept is None:
            return self
        place = torch.full((plan.shapes[self.tensor][self.axis],), -1)
        place[list(kept)] = torch.arange(len(kept))
        positions = place[self.positions]
        return Rows(self.tensor, self.axis, positions[positions >= 0], self.units[positions >= 0])


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """All units of the groups that may be cut, in the order of the partition."""

    partition: Partition
    groups: tuple[ChannelGroup, ...]
    group_of: Tensor
    """For every unit, the number of its group."""

    channels: Tensor
    """For every unit, its place among all channels of the partition (kept groups included)."""

    writers: tuple[Rows, ...]
    """The zero-invariant groups: zero in all rows of a unit silences it."""

    kept_here: Mapping[str, str]
    """Groups that could be cut but are left alone in this run, with the reason."""

    untrained: frozenset[str] = frozenset()
    """The parameters for which they are."""

    @classmethod
    def of(cls, partition: Partition, trained: Collection[str]) -> Units:
        """The units whose every writer is among the `trained` parameters."""
        groups: list[ChannelGroup] = []
        kept_here: dict[str, str] = {}
        untrained: set[str] = set()
        for group in partition.prunable_groups:
            frozen = [part.tensor for part in group.slices if part.role is Role.WRITER and part.tensor not in trained]
            untrained.update(frozen)
            if frozen:
                kept_here[group.name] = f"{frozen[0]} is not trained by the optimizer"
            else:
                groups.append(group)
        first = dict(zip((group.name for group in partition.groups), _starts(partition.groups), strict=True))
        empty = torch.zeros(0, dtype=torch.long)
        return cls(
            partition=partition,
            groups=tuple(groups),
            group_of=torch.cat([empty, *(torch.full((group.num_channels,), number) for number, group in enumerate(groups))]),
            channels=torch.cat([empty, *(first[group.name] + torch.arange(group.num_channels) for group in groups)]),
            writers=_writers(groups),
            kept_here=kept_here,
            untrained=frozenset(untrained),
        )

    def after(self, plan: Plan) -> Units:
        """The same units, with the same numbers, on the model that the plan has made smaller; those that are gone have no rows."""
        return replace(self, writers=tuple(rows.after(plan) for rows in self.writers))

    def __len__(self) -> int:
        return len(self.group_of)

    def why_kept(self) -> str:
        """Why groups stay whole, in one sentence: what this run does not train, else the reason that is most common."""
        if self.kept_here:
            tensors = sorted(self.untrained)
            named = ", ".join(tensors[:3]) + (", ..." if len(tensors) > 3 else "")
            return (
                f"{len(self.kept_here)} of the {len(self.kept_here) + len(self.groups)} groups that could be cut are kept because "
                f"their weights are frozen or not in the optimizer ({named}). Thaw them, and give them to this optimizer."
            )
        reasons = Counter(group.kept_because for group in self.partition.groups if group.kept_because is not None)
        if not reasons:
            return "Every group may be cut."
        reason, count = reasons.most_common(1)[0]
        return f"{count} of the {reasons.total()} groups that are kept: {reason}; trainonce.inspect lists them all."

    def written_by(self, tensors: Collection[str]) -> Tensor:
        """The units that have a writer among these parameters: one boolean each."""
        found = torch.zeros(len(self), dtype=torch.bool)
        for rows in self.writers:
            if rows.tensor in tensors:
                found[rows.units] = True
        return found

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """One piece per group of a vector over units."""
        return dict(zip((group.name for group in self.groups), vector.split([group.num_channels for group in self.groups]), strict=True))

    def alive(self, masks: Tensor) -> Tensor:
        """What `cost.Meter` asks for: the masks at their places among all channels, everything else 1. Differentiable."""
        num_channels = sum(group.num_channels for group in self.partition.groups)
        alive = torch.ones(num_channels + 1, dtype=torch.double)
        return alive.index_copy(0, self.channels, masks.double())

    def per_group(self, vector: Tensor) -> Tensor:
        """Sums of a vector over the units of each group."""
        return torch.zeros(len(self.groups), dtype=vector.dtype).index_add(0, self.group_of, vector)


def _starts(groups: tuple[ChannelGroup, ...]) -> list[int]:
    starts, start = [], 0
    for group in groups:
        starts.append(start)
        start += group.num_channels
    return starts


def _writers(groups: list[ChannelGroup]) -> tuple[Rows, ...]:
    """One entry per axis of a parameter, even if several groups write to it (a norm after a concatenation)."""
    found: dict[tuple[str, int], list[tuple[Tensor, Tensor]]] = {}
    start = 0
    for group in groups:
        for part in group.slices:
            if part.role is Role.WRITER:
                found.setdefault((part.tensor, part.axis), []).append((part.positions, start + part.channels))
        start += group.num_channels
    return tuple(
        Rows(tensor, axis, torch.cat([positions for positions, _ in parts]), torch.cat([units for _, units in parts]))
        for (tensor, axis), parts in found.items()
    )
