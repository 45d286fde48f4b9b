"""Which channels stay, as plain data: what is left of every axis, and which sizes change with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import PlanError
from trainonce.execution.outline import outline_of
from trainonce.messages.limits import SEED, Limits, check_value
from trainonce.messages.plain_text import shorten, shown
from trainonce.structure.agreement import settings_for
from trainonce.structure.axes import axis_cuts
from trainonce.structure.channels import AttributeChange, AxisCut, ChannelGroup, Example
from trainonce.structure.families import with_families
from trainonce.structure.norms import NormScale, used_norms
from trainonce.structure.partition import Partition
from trainonce.structure.plan_fields import read_fields, version_of
from trainonce.structure.settings import SettingChange
from trainonce.structure.swaps import Swap, used_swaps
from trainonce.structure.table import Column, Row, Table, as_percent, in_units

_COLUMNS = (Column("group", widest=80), Column("channels left", is_number=True))
_MOST_SIZES = 12
"""Sizes that a printed plan names one by one."""

_SHARE = Limits(kind=float, above=0, at_most=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which channels of a model stay: all that `silence`, `cut` and `load` need, as plain data."""

    model: str
    kept: Mapping[str, tuple[int, ...]]
    """For each group that loses something, the channels that stay."""

    shapes: Mapping[str, tuple[int, ...]]
    """Of every parameter and buffer before the cut."""

    cuts: tuple[AxisCut, ...]
    attributes: tuple[AttributeChange, ...]
    example: Example | None = field(default=None, compare=False, repr=False)
    """What the cut proves itself on; not written to JSON."""

    outline: Any = field(default=None, compare=False, repr=False)
    """What the example looks like, without its content; `load` runs the model on a stand-in for it."""

    norms: tuple[NormScale, ...] = ()
    """Norms whose weight and eps change, because their mean runs over fewer channels."""

    swaps: tuple[Swap, ...] = ()
    """Modules that compute in another way once they are cut."""

    settings: tuple[SettingChange, ...] = ()
    """What changes in the configuration of the model, so that it builds the small one."""

    @classmethod
    def from_masks(cls, partition: Partition, masks: Mapping[str, Tensor]) -> Plan:
        """The plan that keeps exactly the channels whose mask is not zero.

        Args:
            partition: What `trainonce.inspect` found.
            masks: One mask per group, with an entry per channel; groups without a mask stay whole.

        Raises:
            PlanError: A mask does not fit its group, empties it, or contradicts a size in the model.
        """
        _check_partition(partition)
        if not isinstance(masks, Mapping):
            raise PlanError(
                f"masks must be a dict from group names to masks, got {type(masks).__name__}. The names are "
                "in partition.groups."
            )
        known = {group.name: group for group in partition.groups}
        alive = {group.name: torch.ones(group.num_channels, dtype=torch.bool) for group in partition.groups}
        for name, mask in masks.items():
            if name not in known:
                raise PlanError(
                    f"{partition.model} has no group {shorten(name)}. The names are in "
                    "trainonce.inspect(model, example).groups."
                )
            _check_mask(known[name], mask)
            alive[name] = mask.detach().cpu().bool()
        kept = {
            name: tuple(mask.nonzero().flatten().tolist())
            for name, mask in alive.items()
            if not bool(mask.all())
        }
        cuts = axis_cuts(partition, alive)
        attributes = partition.sizes.changes(torch.cat([*alive.values(), torch.ones(0, dtype=torch.bool)]))
        return cls(
            model=partition.model,
            kept=kept,
            shapes=dict(partition.shapes),
            cuts=cuts,
            attributes=attributes,
            example=partition.example,
            outline=outline_of(partition.example),
            norms=used_norms(partition.norms, ((cut.tensor, cut.axis) for cut in cuts)),
            swaps=used_swaps(partition.swaps, ((cut.tensor, cut.axis) for cut in cuts)),
            settings=settings_for(partition, alive, cuts, attributes),
        )

    @classmethod
    def random(
        cls, partition: Partition, *, keep: float, seed: int = 0, uniform: bool | Sequence[str] = False
    ) -> Plan:
        """A plan that keeps a random share of every group that may be cut, at least one channel of each.

        Args:
            partition: What `trainonce.inspect` found.
            keep: The share that stays, above 0 and at most 1.
            seed: Selects which channels stay.
            uniform: Whether groups of the same role in repeated blocks keep equally many channels, or
                patterns of those that do; see `attach`.
        """
        _check_partition(partition)
        partition = with_families(partition, uniform)
        check_value("keep", keep, _SHARE, "With 0.5, half of each group stays.", error=PlanError)
        check_value("seed", seed, SEED, error=PlanError)
        generator = torch.Generator().manual_seed(seed)
        masks = {}
        for group in partition.prunable_groups:
            mask = torch.zeros(group.num_channels, dtype=torch.bool)
            num_kept = group.step * max(1, round(keep * group.num_channels / group.step))
            mask[torch.randperm(group.num_channels, generator=generator)[:num_kept]] = True
            masks[group.name] = mask
        return cls.from_masks(partition, masks)

    def table(self) -> Table:
        """The groups that lose channels, then what changes with them."""
        rows = [Row((name or "(model)", str(len(kept)))) for name, kept in self.kept.items()]
        before = {name: math.prod(shape) for name, shape in self.shapes.items()}
        left = dict(before)
        for cut in self.cuts:
            left[cut.tensor] = left[cut.tensor] // self.shapes[cut.tensor][cut.axis] * len(cut.kept)
        num_left, num_before = sum(left.values()), sum(before.values())
        share = as_percent(num_left, num_before)
        sizes = [f"{change.place}: {change.before} -> {change.after}" for change in self.attributes]
        more = [f"and {len(sizes) - _MOST_SIZES} more sizes"] if len(sizes) > _MOST_SIZES else []
        return Table(
            f"plan for {self.model}",
            _COLUMNS,
            tuple(rows),
            (
                f"{in_units(num_left)} of {in_units(num_before)} elements stay ({share}), with buffers",
                f"{len(self.cuts)} axes are cut, in {len({cut.tensor for cut in self.cuts})} tensors",
                *sizes[:_MOST_SIZES],
                *more,
            ),
        )

    def __str__(self) -> str:
        """What stays of each group, as a table."""
        return self.table().as_text()

    def __repr__(self) -> str:
        """One line."""
        return f"<Plan for {self.model[-50:]}: cuts {len(self.cuts)} axes of {len(self.kept)} groups>"

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        return self.table().as_html()

    def without_example(self) -> Plan:
        """The same plan, holding no tensors."""
        return replace(self, example=None)

    def to_json(self) -> str:
        """The plan as text; `Plan.from_json` gives an equal plan back."""
        return json.dumps(self.to_data())

    def to_data(self) -> dict[str, Any]:
        """The plan as JSON takes it."""
        norms = {"norms": [list(astuple(norm)) for norm in self.norms]} if self.norms else {}
        swaps = (
            {"swaps": [[s.module, s.kind, s.axis, list(s.tensors)] for s in self.swaps]} if self.swaps else {}
        )
        settings = {"settings": [list(astuple(change)) for change in self.settings]} if self.settings else {}
        return {
            "version": version_of(norms, swaps | settings),
            "model": self.model,
            "kept": {name: list(channels) for name, channels in self.kept.items()},
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "cuts": [[cut.tensor, cut.axis, list(cut.kept), cut.silenced] for cut in self.cuts],
            "attributes": [[a.module, a.name, a.index, a.before, a.after] for a in self.attributes],
            "outline": self.outline,
            **norms,
            **swaps,
            **settings,
        }

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read back what `to_json` wrote; anything else is refused with PlanError."""
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise PlanError(f"the plan is not valid JSON ({shown(error)}). Save the model again.") from None
        return cls.from_data(data)

    @classmethod
    def from_data(cls, data: Any) -> Plan:
        """Read back what `to_data` gave; anything else is refused with PlanError."""
        return cls(**read_fields(data))


def _check_partition(partition: object) -> None:
    if not isinstance(partition, Partition):
        raise PlanError(f"partition must be what trainonce.inspect returned, got {type(partition).__name__}.")


def _check_mask(group: ChannelGroup, mask: Tensor) -> None:
    if not isinstance(mask, Tensor) or bool(torch.isnan(mask).any()):
        raise PlanError(
            f"the mask of group {group.name!r} is not a tensor of zeros and ones. Pass one entry per channel."
        )
    if mask.shape != (group.num_channels,):
        raise PlanError(
            f"group {group.name!r} has {group.num_channels} channels, but its mask has shape "
            f"{tuple(mask.shape)}. Pass one entry per channel."
        )
    if not bool(mask.any()):
        raise PlanError(
            f"the plan empties {group.name!r}: nothing would pass through. Keep at least one of its "
            f"{group.num_channels} channels."
        )
    if (left := int(mask.bool().sum())) % group.step:
        raise PlanError(
            f"the plan keeps {left} channels of {group.name!r}, but the model runs only with multiples of "
            f"{group.step}. Keep {max(group.step, left // group.step * group.step)}."
        )
    if group.kept_because is not None and not bool(mask.all()):
        raise PlanError(
            f"group {group.name!r} may not be cut: {group.kept_because}. Leave it out of the masks."
        )
