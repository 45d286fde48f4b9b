"""What `trainonce.inspect` finds out about a model, as a value: it can be printed, compared and pickled."""

from __future__ import annotations

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
    count_alive,
    full_size,
)
from trainonce.structure.equality import ComparedByContent


class SizeRules(Protocol):
    """What must hold about sizes after a cut, as plain data."""

    def changes(self, alive: Tensor) -> tuple[AttributeChange, ...]:
        """The attributes that must change, for one boolean per channel; PlanError if nothing helps."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Partition(ComparedByContent):
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
    """What the model was inspected with; a cut proves itself on it."""

    sizes: SizeRules = field(repr=False)
    """Which sizes that modules remember follow a cut."""

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
