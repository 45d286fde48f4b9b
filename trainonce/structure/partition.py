"""What `trainonce.inspect` finds out about a model, as a value: it can be printed, compared and pickled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from trainonce.structure.channels import (
    AttributeChange,
    ChannelGroup,
    Contraction,
    Example,
    Role,
    count_alive,
    full_size,
)
from trainonce.structure.configuration import Configuration
from trainonce.structure.equality import ComparedByContent
from trainonce.structure.norms import NormScale
from trainonce.structure.shares import Share, measure_shares
from trainonce.structure.swaps import Swap
from trainonce.structure.table import Column, Row, Table, as_percent, in_units

_COLUMNS = (
    Column("group", widest=36),
    Column("channels", is_number=True),
    Column("params", is_number=True),
    Column("FLOPs", is_number=True),
    Column("may be cut"),
)
_MODULE_NAME = re.compile(r" in (?!place\b|the\b)[\w.]+(?= |,|$)")


class SizeRules(Protocol):
    """What must hold about sizes after a cut, as plain data."""

    def changes(self, alive: Tensor) -> tuple[AttributeChange, ...]:
        """The attributes that must change, for one boolean per channel; PlanError if nothing helps."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Partition(ComparedByContent):
    """All channels of a model in groups: what each costs, and why it is kept if it can't be cut.

    Printed, it is the table that `trainonce inspect` shows.
    """

    model: str
    """Class of the model, as `module.QualName`."""

    groups: tuple[ChannelGroup, ...]
    contractions: tuple[Contraction, ...]
    """What costs multiply-adds, as a function of the masks."""

    tensor_sizes: tuple[Contraction, ...]
    """One per parameter: its number of elements as a function of the masks."""

    shapes: Mapping[str, tuple[int, ...]]
    """Of every parameter and buffer."""

    notes: tuple[str, ...]
    """What inspection could not see."""

    example: Example = field()
    """What the model was inspected with; cuts are verified on it."""

    sizes: SizeRules = field()
    """Which sizes that modules remember follow a cut."""

    norms: tuple[NormScale, ...] = ()
    """What norms need whose mean runs over channels that can be cut."""

    swaps: tuple[Swap, ...] = ()
    """Modules that compute in another way once they are cut."""

    configuration: Configuration | None = None
    """What the model was built from, if it says so; with settings, plans also change those."""

    @property
    def macs(self) -> int:
        """Multiply-adds of the whole model on the example."""
        return sum(full_size(contraction) for contraction in self.contractions)

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters, shared ones counted once."""
        return sum(full_size(tensor_size) for tensor_size in self.tensor_sizes)

    @property
    def prunable_macs(self) -> int:
        """Multiply-adds that would be saved if every prunable group kept as little as it may: one channel."""
        masks: list[Tensor] = []
        for group in self.groups:
            mask = torch.ones(group.num_channels, dtype=torch.long)
            if group.kept_because is None:
                mask[group.step :] = 0
            masks.append(mask)
        alive = torch.cat([*masks, torch.ones(1, dtype=torch.long)])
        return self.macs - sum(count_alive(contraction, alive) for contraction in self.contractions)

    @property
    def prunable_groups(self) -> tuple[ChannelGroup, ...]:
        """The groups that may be cut."""
        return tuple(group for group in self.groups if group.kept_because is None)

    def shares(self) -> tuple[Share, ...]:
        """What each group costs, in the order of the groups, prunable or not."""
        return measure_shares(self.groups, self.contractions, self.tensor_sizes)

    def summary(self) -> list[str]:
        """A few lines: totals, what can be cut, why groups stay, and what inspection could not see."""
        share = as_percent(self.prunable_macs, self.macs)
        reasons = Counter(
            generalize_reason(group.kept_because) for group in self.groups if group.kept_because
        )
        return [
            f"{in_units(self.macs)} multiply-adds, {in_units(self.num_parameters)} parameters",
            f"{share} of the FLOPs can be cut ({len(self.prunable_groups)} of {len(self.groups)} groups)",
            *(f"kept {count}x: {reason}" for reason, count in reasons.most_common()),
            *(f"note: {note}" for note in self.notes),
        ]

    def table(self, *, title: str | None = None, everything: bool = False) -> Table:
        """The groups with what each costs, then the summary.

        Kept axes that nothing writes (a norm's own vectors, what the first layer reads) are only counted,
        unless `everything` is asked for.
        """
        totals = (self.num_parameters, self.macs)
        shown = [
            _row(group, share, *totals)
            for group, share in zip(self.groups, self.shares(), strict=True)
            if everything or group.kept_because is None or _is_written(group)
        ]
        lines = self.summary()
        if hidden := len(self.groups) - len(shown):
            axes = "axis without a writer is" if hidden == 1 else "axes without a writer are"
            lines.append(
                f"{hidden} kept {axes} not shown (`trainonce inspect --all` or table(everything=True))"
            )
        return Table(title or self.model, _COLUMNS, tuple(shown), tuple(lines))

    def __str__(self) -> str:
        """The table that `trainonce inspect` shows, as plain text."""
        return self.table().as_text()

    def __repr__(self) -> str:
        """One line."""
        return (
            f"<Partition of {self.model[-50:]}: {len(self.prunable_groups)} of {len(self.groups)} groups may "
            f"be cut>"
        )

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        return self.table().as_html()


def generalize_reason(reason: str) -> str:
    """The reason with the modules' names left out, so that the same reason in ten blocks counts ten times."""
    return _MODULE_NAME.sub("", reason)


def _is_written(group: ChannelGroup) -> bool:
    return any(part.role is Role.WRITER for part in group.slices)


def _row(group: ChannelGroup, share: Share, num_parameters: int, macs: int) -> Row:
    cells = (
        group.name or "(model)",
        str(group.num_channels) if group.width == 1 else f"{group.num_channels} x {group.width}",
        as_percent(share.parameters, num_parameters),
        as_percent(share.macs, macs),
        "yes" if group.kept_because is None else f"kept: {group.kept_because}",
    )
    return Row(cells, is_dim=group.kept_because is not None)
