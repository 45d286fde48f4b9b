"""The units a run may drop, numbered across all groups, and the parameter rows that belong to each.

A unit is the smallest thing that can be cut on its own: one channel, or one head. Everything that learns,
pulls or counts works on vectors with one entry per unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainonce.structure.channels import ChannelGroup, Role
from trainonce.structure.partition import Partition
from trainonce.structure.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Positions on one axis of one parameter, and the unit each of them belongs to.

    A row is everything at one position: a filter of a kernel, a column of a matrix, one entry of a bias.
    """

    tensor: str
    axis: int
    positions: Tensor
    units: Tensor

    def take(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor, stacked along the first axis."""
        return tensor.index_select(self.axis, self.positions.to(tensor.device)).movedim(self.axis, 0)

    def put(self, tensor: Tensor, rows: Tensor) -> None:
        """Write back, in place, what `take` returned."""
        tensor.index_copy_(self.axis, self.positions, rows.movedim(0, self.axis))

    def sums(self, tensor: Tensor) -> Tensor:
        """The sum of each row of a tensor."""
        # Sum first, then select: summing the selected rows alone would round differently.
        sums = row_sums(tensor.movedim(self.axis, 0))
        return sums[self.positions.to(sums.device)]

    def add_to_units(self, total_U: Tensor, per_row: Tensor) -> None:
        """Add one number per row to the total of the unit it belongs to, in place."""
        total_U.index_add_(0, self.units, per_row.to(total_U))

    def where(self, chosen: Tensor) -> Rows:
        """The chosen rows: one boolean each."""
        return Rows(self.tensor, self.axis, self.positions[chosen], self.units[chosen])

    def to(self, device: torch.device) -> Rows:
        """The same rows with their indices on a device."""
        return Rows(self.tensor, self.axis, self.positions.to(device), self.units.to(device))

    def after(self, plan: Plan) -> Rows:
        """The rows that survive a plan, at their new positions."""
        kept = next(
            (cut.kept for cut in plan.cuts if (cut.tensor, cut.axis) == (self.tensor, self.axis)), None
        )
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
    """For each unit, the index of its group."""

    channels: Tensor
    """For each unit, its index among all channels of the partition, kept groups included."""

    writers: tuple[Rows, ...]
    """The zero-invariant groups: a unit whose rows are all zero outputs zero."""

    kept_here: Mapping[str, str]
    """Groups that could be cut but are kept in this run, with the reason."""

    untrained: frozenset[str] = frozenset()
    """The untrained parameters those groups are kept for."""

    @classmethod
    def of(cls, partition: Partition, trained: Collection[str]) -> Units:
        """The units whose writers are all among the `trained` parameters."""
        groups: list[ChannelGroup] = []
        kept_here: dict[str, str] = {}
        untrained: set[str] = set()
        for group in partition.prunable_groups:
            frozen = [
                part.tensor
                for part in group.slices
                if part.role is Role.WRITER and part.tensor not in trained
            ]
            untrained.update(frozen)
            if frozen:
                kept_here[group.name] = f"{frozen[0]} is not trained by the optimizer"
            else:
                groups.append(group)
        halted = {group.family: group.name for group in partition.prunable_groups if group.name in kept_here}
        halted.pop(None, None)
        for group in [group for group in groups if group.family in halted]:
            groups.remove(group)
            kept_here[group.name] = f"equal widths: {halted[group.family]} is kept"
        first = dict(zip((group.name for group in partition.groups), _starts(partition.groups), strict=True))
        empty = torch.zeros(0, dtype=torch.long)
        return cls(
            partition=partition,
            groups=tuple(groups),
            group_of=torch.cat(
                [empty, *(torch.full((group.num_channels,), number) for number, group in enumerate(groups))]
            ),
            channels=torch.cat(
                [empty, *(first[group.name] + torch.arange(group.num_channels) for group in groups)]
            ),
            writers=_writers(groups),
            kept_here=kept_here,
            untrained=frozenset(untrained),
        )

    def after(self, plan: Plan) -> Units:
        """The same units, numbered as before, in the model that the plan has cut.

        Units that are gone have no rows.
        """
        return replace(self, writers=tuple(rows.after(plan) for rows in self.writers))

    def __len__(self) -> int:
        return len(self.group_of)

    @property
    def sizes(self) -> Tensor:
        """For each group, how many units it has in the dense model."""
        return torch.tensor([group.num_channels for group in self.groups], dtype=torch.long)

    def why_kept(self) -> str:
        """One sentence on why groups are kept: untrained weights, else the most common reason."""
        if self.kept_here:
            tensors = sorted(self.untrained)
            named = ", ".join(tensors[:3]) + (", ..." if len(tensors) > 3 else "")
            return (
                f"{len(self.kept_here)} of the {len(self.kept_here) + len(self.groups)} groups that could be "
                f"cut are kept because their weights are frozen or not in the optimizer ({named}). "
                "Unfreeze them, and pass them to this optimizer."
            )
        reasons = Counter(
            group.kept_because for group in self.partition.groups if group.kept_because is not None
        )
        if not reasons:
            return "Every group may be cut."
        reason, count = reasons.most_common(1)[0]
        return (
            f"{count} of the {reasons.total()} groups that are kept: {reason}; print trainonce.inspect(...) "
            "to see them all."
        )

    def written_by(self, tensors: Collection[str]) -> Tensor:
        """Which units have rows in any of these parameters: one boolean each."""
        found = torch.zeros(len(self), dtype=torch.bool)
        for rows in self.writers:
            if rows.tensor in tensors:
                found[rows.units] = True
        return found

    def sum_rows(
        self,
        tensors: Mapping[str, Tensor],
        of_rows: Callable[[Tensor, Rows], Tensor],
        *,
        dtype: torch.dtype = torch.double,
    ) -> Tensor:
        """One number per unit: `of_rows` gives one per row of a parameter, and rows are added up."""
        total = torch.zeros(len(self), dtype=dtype)
        for rows in self.writers:
            rows.add_to_units(total, of_rows(rows.take(tensors[rows.tensor].detach()), rows))
        return total

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector over units, split by group."""
        return dict(
            zip(
                (group.name for group in self.groups),
                vector.split([group.num_channels for group in self.groups]),
                strict=True,
            )
        )

    def alive(self, masks: Tensor) -> Tensor:
        """The masks as `cost.Meter` wants them: one entry per channel of the partition, 1 where kept.

        Differentiable.
        """
        num_channels = sum(group.num_channels for group in self.partition.groups)
        alive = torch.ones(num_channels + 1, dtype=torch.double)
        return alive.index_copy(0, self.channels, masks.double())

    def per_group(self, vector: Tensor) -> Tensor:
        """A vector over units, summed by group."""
        return torch.zeros(len(self.groups), dtype=vector.dtype).index_add(0, self.group_of, vector)

    def best_first(self, scores: Tensor) -> Tensor:
        """All units, group by group, in falling order of score; ties keep their order."""
        by_score = torch.argsort(scores, descending=True, stable=True)
        return by_score[torch.argsort(self.group_of[by_score], stable=True)]

    def rank_in_group(self, scores: Tensor) -> Tensor:
        """For each unit, how many units of its group come before it: 0 for the highest score."""
        order, sizes = self.best_first(scores), self.sizes
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[self.group_of[order]]
        return rank


def row_sums(rows: Tensor) -> Tensor:
    """The sum of each row: one number per entry of the first axis."""
    return rows.flatten(1).sum(dim=1) if rows.dim() > 1 else rows


def as_matrix(rows: Tensor) -> Tensor:
    """Each row as one line of a matrix."""
    return rows.flatten(1) if rows.dim() > 1 else rows[:, None]


def _starts(groups: tuple[ChannelGroup, ...]) -> list[int]:
    starts, start = [], 0
    for group in groups:
        starts.append(start)
        start += group.num_channels
    return starts


def _writers(groups: list[ChannelGroup]) -> tuple[Rows, ...]:
    """One entry per axis of a parameter, even if several groups write to it (a norm after a concat)."""
    found: dict[tuple[str, int], list[tuple[Tensor, Tensor]]] = {}
    start = 0
    for group in groups:
        for part in group.slices:
            if part.role is Role.WRITER:
                found.setdefault((part.tensor, part.axis), []).append((part.positions, start + part.channels))
        start += group.num_channels
    return tuple(
        Rows(
            tensor,
            axis,
            torch.cat([positions for positions, _ in parts]),
            torch.cat([units for _, units in parts]),
        )
        for (tensor, axis), parts in found.items()
    )
