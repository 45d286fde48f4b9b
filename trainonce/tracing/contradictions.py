"""Cuts that contradict a size in the model.

Takes a recording, ties or keeps channels until no trial cut contradicts a size.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from trainonce.structure.channels import ChannelGroup
from trainonce.tracing.partition import Numbering, number_channels, settle
from trainonce.tracing.sizes.checks import Check
from trainonce.tracing.sizes.movements import MovementCheck
from trainonce.tracing.sizes.rules import SizeRules
from trainonce.tracing.sizes.solver import solve
from trainonce.tracing.sizes.survivors import Replays, Survivors
from trainonce.tracing.state.expressions import Attribute, AxisSize
from trainonce.tracing.state.labels import LabelBook, Value
from trainonce.tracing.state.recording import Recording


class Dropped(Enum):
    """Which channels of a group a trial drops."""

    ANY = "any"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Half:
    """The groups whose number has `parity` at `bit`; every two groups are told apart by some bit."""

    bit: int
    parity: int

    def holds(self, number: int) -> bool:
        """Whether the group of this number is one of them."""
        return number >> self.bit & 1 == self.parity


@dataclass(frozen=True, slots=True)
class Trial:
    """A cut to try: how channels are drawn, and the groups that are cut (None: all)."""

    seed: int
    dropped: Dropped
    half: Half | None = None


_ENDS = (Dropped.ANY, Dropped.FIRST, Dropped.LAST)
"""How the first trials drop channels: a size in the middle of an axis can't follow a cut at one end."""


def keep_contradicted(recording: Recording, order: Mapping[str, int]) -> SizeRules:
    """Tie or keep the channels whose cut contradicts a size in the model, until no trial finds one.

    Gives the rules that sizes must follow.
    """
    settle(recording)
    rules = SizeRules.of(recording)
    checks = rules.checks()
    numbering = number_channels(recording, order)
    mended: set[Check] = set()
    replays = Replays()
    coupled = _coupled(checks, recording, numbering)
    for trial in _trials(len(numbering.groups) if coupled else 0):
        while True:
            masks = random_masks(numbering.groups, seed=trial.seed, dropped=trial.dropped)
            if trial.half is not None:
                names = [
                    group.name for number, group in enumerate(numbering.groups) if trial.half.holds(number)
                ]
                masks = {name: masks[name] for name in names if name in masks}
            survivors = Survivors(numbering.alive_labels(masks), replays)
            _, failed = solve(checks if trial.half is None else coupled, survivors)
            if not failed:
                break
            _resolve(failed, mended, recording.book)
            settle(recording)
            numbering = number_channels(recording, order)
    return rules


def _trials(num_groups: int) -> list[Trial]:
    """Cuts of all groups, then of halves: each group is cut at least once while any other stays whole."""
    halves = itertools.starmap(Half, itertools.product(range(num_groups.bit_length()), (0, 1)))
    return [
        *(Trial(seed, dropped) for seed, dropped in enumerate(_ENDS)),
        *(
            Trial(seed, dropped, half)
            for seed, (half, dropped) in enumerate(
                zip(halves, itertools.chain(_ENDS, itertools.repeat(Dropped.ANY)), strict=False)
            )
        ),
    ]


def _resolve(failed: Sequence[Check], mended: set[Check], book: LabelBook) -> None:
    num_ties = book.num_ties
    stuck = [check for check in failed if check in mended or not _mend(check, book)]
    mended.update(check for check in failed if check not in stuck)
    # What one check ties may be all that another one lacks: look again before giving up.
    for check in stuck if book.num_ties == num_ties else ():
        for layer in check.layers:
            book.keep(layer.ids, check.reason)


def _mend(check: Check, book: LabelBook) -> bool:
    """Tie channels so that the check can hold; False if there is no way.

    Pieces of one tensor lose the same. A size taken from another tensor ties the result to that tensor.
    """
    if not isinstance(check, MovementCheck):
        return False
    results, before = check.movement.results, book.num_ties
    for other in results[1:]:
        if other.shape == results[0].shape:
            for axis in range(len(other.shape)):
                _tie_axes(book, (results[0], axis), (other, axis), check.reason)
    sizes = check.sizes
    if len(results) == 1 and len(sizes) == len(results[0].shape):
        for axis, size in enumerate(sizes):
            if isinstance(size, AxisSize):
                _tie_axes(book, (results[0], axis), (size.value, size.axis), check.reason)
    return book.num_ties > before


def _tie_axes(book: LabelBook, left: tuple[Value, int], right: tuple[Value, int], reason: str) -> None:
    """Tie the labels of two tensors along one axis of each, if both vary along it alone and are as long."""
    (mine, my_axis), (other, other_axis) = left, right
    if mine.shape[my_axis] != other.shape[other_axis]:
        return
    for layer in (layer for layer in mine.layers if layer.varying == (my_axis,)):
        for partner in (layer for layer in other.layers if layer.varying == (other_axis,)):
            book.tie(layer.ids.flatten(), partner.ids.flatten(), reason)


def _coupled(checks: list[Check], recording: Recording, numbering: Numbering) -> list[Check]:
    """The checks that look at more than one group, themselves or through an attribute that they share."""
    owners = torch.arange(len(numbering.groups)).repeat_interleave(
        torch.tensor([group.num_channels for group in numbering.groups])
    )
    seen: dict[Check, set[int]] = {}
    through: dict[Attribute, set[int]] = {}
    for check in checks:
        channels = [
            numbering.channel_of_label[recording.book.roots(layer.ids).abs().flatten()]
            for layer in check.layers
        ]
        known = torch.cat(channels) if channels else torch.zeros(0, dtype=torch.long)
        seen[check] = set(owners[known[known >= 0].unique()].unique().tolist())
        for attribute in check.attributes:
            through.setdefault(attribute, set()).update(seen[check])
    return [
        check
        for check in checks
        if len(seen[check].union(*(through[attribute] for attribute in check.attributes))) > 1
    ]


def random_masks(
    groups: Sequence[ChannelGroup], *, seed: int, dropped: Dropped = Dropped.ANY
) -> dict[str, Tensor]:
    """Masks that drop a random share of every group that may be cut.

    Each group loses another share, so that no two counts agree by chance.
    """
    generator = torch.Generator().manual_seed(seed)
    masks = {}
    for group in groups:
        if group.kept_because is not None:
            continue
        share = 0.3 + 0.6 * float(torch.rand((), generator=generator))
        num_steps = group.num_channels // group.step
        num_kept = group.step * min(max(1, round(share * num_steps)), num_steps - 1)
        order = torch.randperm(group.num_channels, generator=generator)
        if dropped is not Dropped.ANY:
            order = order.sort(descending=dropped is Dropped.FIRST).values
        mask = torch.zeros(group.num_channels, dtype=torch.bool)
        mask[order[:num_kept]] = True
        masks[group.name] = mask
    return masks
