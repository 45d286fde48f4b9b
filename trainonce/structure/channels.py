"""The vocabulary: groups of channels, the slices of tensors that belong to them, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import Tensor

from trainonce.structure.equality import ComparedByContent

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
class Slice(ComparedByContent):
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
class ChannelGroup(ComparedByContent):
    """Channels that are written and read by the same tensors; each can be cut without the others."""

    name: str
    """The module that writes the channels first; unique within a partition."""

    num_channels: int
    """How many units can be cut one by one: single channels, or whole heads where a reshape ties them."""

    width: int
    """Positions that one unit takes on its writer: 1 for single channels, head_dim for heads."""

    slices: tuple[Slice, ...]

    kept_because: str | None
    """Why this group can't be cut; None if it can."""

    step: int = 1
    """How many units stay is a multiple of this: some operators take no other sizes."""

    family: str | None = None
    """Groups of one family keep equally many steps; None: this one goes by itself."""

    def __repr__(self) -> str:
        """One line."""
        units = f"{self.num_channels} channels" if self.width == 1 else f"{self.num_channels} x {self.width}"
        verdict = "may be cut" if self.kept_because is None else f"kept: {self.kept_because}"
        return f"<ChannelGroup {self.name or '(model)'}: {units}, {verdict}>"


@dataclass(frozen=True, slots=True, eq=False)
class Factor(ComparedByContent):
    """How many positions of an axis are alive, as a function of the masks.

        alive = sum_r count_r * prod_l mask[channel_rl]

    Channels are numbered through all groups of the partition; -1 is always alive.
    """

    counts_R: Tensor
    channels_RL: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Contraction(ComparedByContent):
    """A product of live axes: `coefficient * prod(alive factors)` multiply-adds, or parameters."""

    where: str
    coefficient: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class AxisCut:
    """What stays of one axis of one parameter or buffer."""

    tensor: str
    axis: int
    kept: tuple[int, ...]
    silenced: bool
    """Whether the dropped positions are zeroed before the cut (writers), or only removed."""


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """A size that a module remembers and that the cut changes."""

    module: str
    name: str
    index: int | None
    """Position, where the attribute is a tuple or a list; None for a plain integer."""

    before: int
    after: int

    @property
    def place(self) -> str:
        """The attribute as a person would write it: `blocks.0.attn.num_heads`, `stage.sizes[1]`."""
        where = f"{self.module}.{self.name}" if self.module else self.name
        return where if self.index is None else f"{where}[{self.index}]"


def count_alive(contraction: Contraction, alive: Tensor) -> int:
    """The exact size of a contraction; `alive` has a 0 or 1 per channel, then a 1 for 'always alive'."""
    size = contraction.coefficient
    for factor in contraction.factors:
        size *= int((factor.counts_R * alive[factor.channels_RL].prod(dim=1)).sum())
    return size


def full_size(contraction: Contraction) -> int:
    """The size of a contraction with every channel alive."""
    size = contraction.coefficient
    for factor in contraction.factors:
        size *= int(factor.counts_R.sum())
    return size
