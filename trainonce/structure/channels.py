"""The vocabulary: what a model's removable channels are, and which of them stay.

`Partition` is what `trainonce.inspect` finds out about a model; a `Plan` (in `plan`) is a decision made on
it. Both are values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

Example = Tensor | tuple[Any, ...] | dict[str, Any]
"""What a model is called with: one tensor, a tuple of positional inputs, or a dict of keyword inputs."""


class Role(Enum):
    """What a tensor's axis is to the channels on it."""

    WRITER = "writer"
    """Zero here silences the channel."""

    READER = "reader"
    """Consumes the channel; cut with it, but need not be zero."""

    FOLLOWER = "follower"
    """Cut with the channel, and must not be zeroed: buffers, `weight_norm`'s direction."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """The positions on one axis of one parameter or buffer that belong to a group's channels."""

    tensor: str
    """Qualified name, as in `model.state_dict()`."""

    axis: int

    role: Role

    positions: Tensor
    """Indices on the axis."""

    channels: Tensor
    """For each position, which channel of the group it belongs to."""


@dataclass(frozen=True, slots=True, eq=False)
class ChannelGroup:
    """Channels that are written and read by the same tensors; each can be cut without the others."""

    name: str
    """The module that writes the channels first; unique within a partition."""

    num_channels: int
    """How many units can be cut one by one: single channels, or whole heads where a reshape ties them."""

    width: int
    """Positions that one unit takes on its writer: 1 for single channels, head_dim for heads."""

    slices: tuple[Slice, ...]

    kept_because: str | None
    """Why nothing of this group may be cut; None if it may."""


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """How many positions of an axis are alive, as a function of the masks.

        alive = sum_r count_r * prod_l mask[channel_rl]

    Channels are numbered through all groups of the partition; -1 is always alive.
    """

    counts_R: Tensor
    channels_RL: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """A product of live axes: `coefficient * prod(alive factors)` multiply-adds, or parameters."""

    where: str
    coefficient: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """A size that a module remembers and that the cut changes."""

    module: str
    name: str
    index: int | None
    """Position, where the attribute is a tuple or a list; None for a plain integer."""

    before: int
    after: int


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """All channels of a model, in groups, with the cost of each and the reason where one is kept."""

    model: str
    """Class of the model, as `module.QualName`."""

    groups: tuple[ChannelGroup, ...]
    contractions: tuple[Contraction, ...]
    tensor_sizes: tuple[Contraction, ...]
    """One per parameter: its number of elements as a function of the masks."""

    shapes: Mapping[str, tuple[int, ...]]
    """Of every parameter and buffer."""

    notes: tuple[str, ...]
    """What inspection could not see, in words."""

    example: Example = field(repr=False)
    solve_sizes: Callable[[Mapping[str, Tensor]], tuple[AttributeChange, ...]] = field(repr=False)
    """From one boolean mask per group (True = alive) to the attributes that must change; raises PlanError."""

    @property
    def macs(self) -> int:
        """Multiply-adds of the whole model on the example."""
        return sum(_full_size(contraction) for contraction in self.contractions)

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters, shared ones counted once."""
        return sum(_full_size(tensor_size) for tensor_size in self.tensor_sizes)

    @property
    def prunable_macs(self) -> int:
        """Multiply-adds that would be gone if every group that may be cut kept a single channel."""
        masks: list[Tensor] = []
        for group in self.groups:
            mask = torch.ones(group.num_channels, dtype=torch.long)
            if group.kept_because is None:
                mask[1:] = 0
            masks.append(mask)
        alive = torch.cat([*masks, torch.ones(1, dtype=torch.long)])
        return self.macs - sum(count_alive(contraction, alive) for contraction in self.contractions)

    @property
    def prunable_groups(self) -> tuple[ChannelGroup, ...]:
        """The groups that may be cut."""
        return tuple(group for group in self.groups if group.kept_because is None)

    def __str__(self) -> str:
        """A plain table; `trainonce inspect` prints a richer one."""
        rows = [f"{self.model}: {self.macs:,} multiply-adds, {self.num_parameters:,} parameters"]
        for group in self.groups:
            verdict = "may be cut" if group.kept_because is None else f"kept: {group.kept_because}"
            units = f"{group.num_channels}" if group.width == 1 else f"{group.num_channels} x {group.width}"
            rows.append(f"  {group.name:<40} {units:>10}  {verdict}")
        return "\n".join([*rows, *(f"  note: {note}" for note in self.notes)])


def count_alive(contraction: Contraction, alive: Tensor) -> int:
    """The exact size of a contraction; `alive` has one 0 or 1 per channel and a last 1 for 'always'."""
    size = contraction.coefficient
    for factor in contraction.factors:
        size *= int((factor.counts_R * alive[factor.channels_RL].prod(dim=1)).sum())
    return size


def _full_size(contraction: Contraction) -> int:
    size = contraction.coefficient
    for factor in contraction.factors:
        size *= int(factor.counts_R.sum())
    return size
