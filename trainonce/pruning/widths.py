"""Which groups change their width together, and by how many units at a time.

A *width* counts steps: the groups of one family have as many steps and keep equally many of them. A group by
itself is a family of one; its step is one unit unless the model takes only multiples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainonce.structure.channels import ChannelGroup

WIDEST_ROUNDING = 16
"""Multiples of 16 fill the vector units of CPUs and GPUs; odd widths can make a smaller model slower."""


@dataclass(frozen=True, slots=True, eq=False)
class Widths:
    """Families of groups, numbered in the order of their first members."""

    family_of: Tensor
    """For each group, the number of its family."""

    steps: Tensor
    """For each group, how many of its units make one step."""

    members: tuple[tuple[int, ...], ...]
    """For each family, the numbers of its groups."""

    @property
    def are_plain(self) -> bool:
        """Whether each group goes by itself, one unit at a time."""
        return len(self.members) == len(self.steps) and bool((self.steps == 1).all())

    @classmethod
    def of(cls, groups: Sequence[ChannelGroup]) -> Widths:
        """The families of these groups."""
        members: dict[object, list[int]] = {}
        for number, group in enumerate(groups):
            members.setdefault(number if group.family is None else group.family, []).append(number)
        family_of = torch.zeros(len(groups), dtype=torch.long)
        for family, numbers in enumerate(members.values()):
            family_of[numbers] = family
        return cls(
            family_of,
            torch.tensor([group.step for group in groups], dtype=torch.long),
            tuple(tuple(numbers) for numbers in members.values()),
        )

    def of_counts(self, counts: Tensor) -> Tensor:
        """The mean width of each family, rounded down, when its groups keep so many units."""
        total = torch.zeros(len(self.members), dtype=torch.long)
        return total.index_add(0, self.family_of, counts) // total.index_add(0, self.family_of, self.steps)

    def within(self, counts: Tensor) -> Tensor:
        """The largest width of each family that all of its groups can have with so many units."""
        return self._least(counts // self.steps)

    def counts(self, widths: Tensor) -> Tensor:
        """How many units each group keeps."""
        return widths[self.family_of] * self.steps

    def any_of(self, groups: Tensor) -> Tensor:
        """The families that have one of these groups: one boolean each."""
        found = torch.zeros(len(self.members), dtype=torch.bool)
        found[self.family_of[groups]] = True
        return found

    def roundings(self, of_groups: Tensor) -> Tensor:
        """What each family's width is rounded to, from what its groups' counts are rounded to."""
        return -self._least(-(of_groups // self.steps).clamp_min(1))

    def _least(self, of_groups: Tensor) -> Tensor:
        start = torch.full((len(self.members),), torch.iinfo(torch.long).max)
        return start.scatter_reduce(0, self.family_of, of_groups, reduce="amin")


def rounding_of(num_channels: int, width: int, round_to: int | None) -> int:
    """What a group's width is rounded to: a power of two near 1/16 of it, at most 16; 1 for heads."""
    if round_to is not None:
        return min(round_to, num_channels)
    if width > 1:
        return 1
    sixteenth = max(1, num_channels // 16)
    return min(WIDEST_ROUNDING, 1 << (sixteenth.bit_length() - 1))


def rounded_up(share: float) -> float:
    """A share rounded up to four digits, so that asking for it works."""
    return min(1.0, (int(share * 10_000) + 1) / 10_000)
