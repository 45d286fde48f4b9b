"""Cuts that contradict a size in the model.

Takes a recording, ties or keeps channels until no random cut contradicts any.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainonce.structure.channels import ChannelGroup
from trainonce.tracing.partition import Numbering, SizeSolver, number_channels, settle
from trainonce.tracing.sizes.checks import Check, Replays
from trainonce.tracing.sizes.solver import checks_of
from trainonce.tracing.state.expressions import Attribute
from trainonce.tracing.state.recording import Recording


def keep_contradicted(
    recording: Recording, order: Mapping[str, int], *, seeds: Sequence[int] = (0, 1, 2)
) -> SizeSolver:
    """Try random masks.

    Channels whose cut contradicts a size in the model are tied or kept, until nothing does.

    The answer solves for sizes with the groups that remain.
    """
    settle(recording)
    checks = checks_of(recording)
    numbering = number_channels(recording, order)
    mended: set[Check] = set()
    replays = Replays()
    coupled = _coupled(checks, recording, numbering)
    num_bits = len(numbering.groups).bit_length() if coupled else 0
    # Every two groups are told apart by a bit of their number: each is cut at least once while the other
    # stays whole.
    halves = [
        (seed, bit, parity) for seed, (bit, parity) in enumerate(itertools.product(range(num_bits), (0, 1)))
    ]
    for seed, bit, parity in [*((seed, None, 0) for seed in seeds), *halves]:
        while True:
            masks = random_masks(numbering.groups, seed)
            names = [
                group.name
                for place, group in enumerate(numbering.groups)
                if bit is None or place >> bit & 1 == parity
            ]
            solver = SizeSolver(recording, numbering, checks if bit is None else coupled)
            _, failed = solver.attempt({name: masks[name] for name in names if name in masks}, replays)
            if not failed:
                break
            num_ties = recording.book.num_ties
            stuck = [check for check in failed if check in mended or not check.mend()]
            mended.update(check for check in failed if check not in stuck)
            # What one check ties may be all that another one lacks: look again before giving up.
            for check in stuck if recording.book.num_ties == num_ties else ():
                for layer in check.layers:
                    recording.book.keep(layer.ids, check.reason)
            settle(recording)
            numbering = number_channels(recording, order)
    return SizeSolver(recording, numbering, checks)


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


def random_masks(groups: Sequence[ChannelGroup], seed: int) -> dict[str, Tensor]:
    """Masks that drop another random share of every group that may be cut, so that no two counts agree by chance.

    Seeds 1 and 2 drop the first and the last channels of each group: a size in the middle of an axis can't follow those.
    """
    generator = torch.Generator().manual_seed(seed)
    masks = {}
    for group in groups:
        if group.kept_because is not None:
            continue
        share = 0.3 + 0.6 * float(torch.rand((), generator=generator))
        num_kept = min(max(1, round(share * group.num_channels)), group.num_channels - 1)
        order = torch.randperm(group.num_channels, generator=generator)
        order = order.sort(descending=seed == 1).values if seed in (1, 2) else order
        mask = torch.zeros(group.num_channels, dtype=torch.bool)
        mask[order[:num_kept]] = True
        masks[group.name] = mask
    return masks
