"""The vocabulary: what a model's removable channels are, and which of them stay.

`Partition` is what `trainonce.inspect` finds out about a model; `Plan` is a decision made on it. Both are values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

PLAN_VERSION = 1

Example = Tensor | tuple[Any, ...] | dict[str, Any]
"""What a model is called with: one tensor, a tuple of positional inputs, or a dict of keyword inputs."""


class WrongPlan(ValueError):
    """A plan that can't be used: damaged, for another model, or emptying a layer."""


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


@dataclass(frozen=True, slots=True)
class AxisCut:
    """What stays of one axis of one parameter or buffer."""

    tensor: str
    axis: int
    kept: tuple[int, ...]
    silenced: bool
    """Whether the dropped positions are zeroed before the cut (writers), or only removed."""


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
    """From one boolean mask per group (True = alive) to the attributes that must change; raises WrongPlan."""

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
        masks = []
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Which channels of a model stay: everything that `silence`, `cut` and `load` need, as plain data."""

    model: str
    kept: Mapping[str, tuple[int, ...]]
    """For each group that loses something, the channels that stay."""

    shapes: Mapping[str, tuple[int, ...]]
    """Of every parameter and buffer before the cut."""

    cuts: tuple[AxisCut, ...]
    attributes: tuple[AttributeChange, ...]
    example: Example | None = field(default=None, compare=False, repr=False)
    """What the cut proves itself on; not written to JSON."""

    @classmethod
    def from_masks(cls, partition: Partition, masks: Mapping[str, Tensor]) -> Plan:
        """The plan that keeps exactly the channels whose mask is not zero; groups without a mask stay whole."""
        known = {group.name: group for group in partition.groups}
        alive = {group.name: torch.ones(group.num_channels, dtype=torch.bool) for group in partition.groups}
        for name, mask in masks.items():
            if name not in known:
                raise WrongPlan(f"there is no group {name!r} in {partition.model}. Take the names from trainonce.inspect(model, example).groups.")
            _check_mask(known[name], mask)
            alive[name] = mask.detach().cpu().bool()
        kept = {name: tuple(mask.nonzero().flatten().tolist()) for name, mask in alive.items() if not bool(mask.all())}
        return cls(
            model=partition.model,
            kept=kept,
            shapes=dict(partition.shapes),
            cuts=_axis_cuts(partition, alive),
            attributes=partition.solve_sizes(alive),
            example=partition.example,
        )

    @classmethod
    def random(cls, partition: Partition, *, keep: float, seed: int = 0) -> Plan:
        """A plan that keeps a random share of every group that may be cut, at least one channel of each."""
        if not 0 < keep <= 1:
            raise WrongPlan(f"keep must be above 0 and at most 1, got {keep}. 0.5 keeps half of every group.")
        generator = torch.Generator().manual_seed(seed)
        masks = {}
        for group in partition.prunable_groups:
            mask = torch.zeros(group.num_channels, dtype=torch.bool)
            num_kept = max(1, round(keep * group.num_channels))
            mask[torch.randperm(group.num_channels, generator=generator)[:num_kept]] = True
            masks[group.name] = mask
        return cls.from_masks(partition, masks)

    def without_example(self) -> Plan:
        """The same plan, holding no tensors."""
        return replace(self, example=None)

    def to_json(self) -> str:
        """The plan as text; `Plan.from_json` gives an equal plan back."""
        return json.dumps(
            {
                "version": PLAN_VERSION,
                "model": self.model,
                "kept": {name: list(channels) for name, channels in self.kept.items()},
                "shapes": {name: list(shape) for name, shape in self.shapes.items()},
                "cuts": [[cut.tensor, cut.axis, list(cut.kept), cut.silenced] for cut in self.cuts],
                "attributes": [[a.module, a.name, a.index, a.before, a.after] for a in self.attributes],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read back what `to_json` wrote; anything else is refused with WrongPlan."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WrongPlan(f"the plan is not valid JSON ({error}). Save the model again.") from None
        return _plan_from_data(data)


def _check_mask(group: ChannelGroup, mask: Tensor) -> None:
    if mask.shape != (group.num_channels,):
        raise WrongPlan(f"group {group.name!r} has {group.num_channels} channels, its mask has shape {tuple(mask.shape)}. Give one entry per channel.")
    if not bool(mask.any()):
        raise WrongPlan(f"the plan empties {group.name!r}: nothing would pass through. Keep at least one of its {group.num_channels} channels.")
    if group.kept_because is not None and not bool(mask.all()):
        raise WrongPlan(f"group {group.name!r} may not be cut: {group.kept_because}. Leave it out of the masks.")


def _axis_cuts(partition: Partition, alive: Mapping[str, Tensor]) -> tuple[AxisCut, ...]:
    kept_on_axis: dict[tuple[str, int], Tensor] = {}
    silenced: dict[tuple[str, int], bool] = {}
    for group in partition.groups:
        if bool(alive[group.name].all()):
            continue
        for part in group.slices:
            key = (part.tensor, part.axis)
            if key not in kept_on_axis:
                kept_on_axis[key] = torch.ones(partition.shapes[part.tensor][part.axis], dtype=torch.bool)
                silenced[key] = part.role is Role.WRITER
            kept_on_axis[key][part.positions] &= alive[group.name][part.channels]
    for tensor, axis in kept_on_axis:
        if not bool(kept_on_axis[tensor, axis].any()):
            raise WrongPlan(f"the plan empties axis {axis} of {tensor}: nothing would pass through. Keep at least one channel that uses it.")
    return tuple(
        AxisCut(tensor=tensor, axis=axis, kept=tuple(kept.nonzero().flatten().tolist()), silenced=silenced[tensor, axis])
        for (tensor, axis), kept in kept_on_axis.items()
    )


def _plan_from_data(data: Any) -> Plan:
    if not isinstance(data, dict) or "version" not in data:
        raise WrongPlan("this is not a plan: the field 'version' is missing. Save the model again with trainonce.save.")
    if data["version"] != PLAN_VERSION:
        raise WrongPlan(f"the plan has version {data['version']!r}, this trainonce reads version {PLAN_VERSION}. Install the trainonce that wrote it.")
    try:
        return Plan(
            model=_text(data["model"]),
            kept={_text(name): _naturals(channels) for name, channels in data["kept"].items()},
            shapes={_text(name): _naturals(shape) for name, shape in data["shapes"].items()},
            cuts=tuple(AxisCut(_text(tensor), _natural(axis), _naturals(kept), _flag(silenced)) for tensor, axis, kept, silenced in data["cuts"]),
            attributes=tuple(
                AttributeChange(_text(module), _text(name), None if index is None else _natural(index), _natural(before), _natural(after))
                for module, name, index, before, after in data["attributes"]
            ),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise WrongPlan(f"the plan is damaged ({type(error).__name__}: {error}). Save the model again.") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {value!r}")
    return value


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"expected a whole number from 0 on, got {value!r}")
    return value


def _naturals(values: Sequence[Any]) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"expected a list, got {values!r}")
    return tuple(_natural(value) for value in values)
