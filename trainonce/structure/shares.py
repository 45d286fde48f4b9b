"""What each group of channels is worth: the multiply-adds and parameters that depend on it.

One pass over the contractions serves all groups, so that hundreds of groups take no longer than a few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from trainonce.structure.channels import ChannelGroup, Contraction, Factor


@dataclass(frozen=True, slots=True)
class Share:
    """What vanishes when one group keeps only its first channel (or step) and all others stay whole."""

    macs: int
    parameters: int


def measure_shares(
    groups: Sequence[ChannelGroup], contractions: Iterable[Contraction], tensor_sizes: Iterable[Contraction]
) -> tuple[Share, ...]:
    """One `Share` per group, in their order, whether the group may be cut or not."""
    widths = torch.tensor([group.num_channels for group in groups], dtype=torch.long)
    group_of_channel = torch.repeat_interleave(torch.arange(len(widths)), widths)
    steps = torch.tensor([group.step for group in groups], dtype=torch.long)
    starts = widths.cumsum(0) - widths
    is_first = torch.arange(len(group_of_channel)) < (starts + steps)[group_of_channel]
    # Channel -1 is always alive: as the last entry of both vectors, it belongs to no group.
    group_of_channel = torch.cat([group_of_channel, torch.tensor([-1])])
    is_first = torch.cat([is_first, torch.tensor([True])])
    macs = _vanishing(contractions, group_of_channel, is_first)
    parameters = _vanishing(tensor_sizes, group_of_channel, is_first)
    return tuple(Share(macs=macs[index], parameters=parameters[index]) for index in range(len(widths)))


def _vanishing(
    contractions: Iterable[Contraction], group_of_channel: Tensor, is_first: Tensor
) -> dict[int, int]:
    """For each group the sum, over all contractions, of  c * (prod_f full_f - prod_f (full_f - lost_f))."""
    vanished: dict[int, int] = defaultdict(int)
    for contraction in contractions:
        full_sizes = [int(factor.counts_R.sum()) for factor in contraction.factors]
        losses = [_lost_by_group(factor, group_of_channel, is_first) for factor in contraction.factors]
        for group in set().union(*losses):
            left = prod(full - lost.get(group, 0) for full, lost in zip(full_sizes, losses, strict=True))
            vanished[group] += contraction.coefficient * (prod(full_sizes) - left)
    return vanished


def _lost_by_group(factor: Factor, group_of_channel: Tensor, is_first: Tensor) -> dict[int, int]:
    """How many positions of an axis die with each group.

    A row dies if it needs any channel but the group's first.
    """
    needed_RL = factor.channels_RL
    group_RL = torch.where(is_first[needed_RL], -1, group_of_channel[needed_RL])
    rows_RL = torch.arange(len(group_RL)).unsqueeze(1).expand_as(group_RL)
    # A row that needs two channels of one group dies once.
    pairs = torch.stack([group_RL.flatten(), rows_RL.flatten()])[:, (group_RL >= 0).flatten()].unique(dim=1)
    lost = torch.zeros(len(group_of_channel), dtype=torch.long).index_add_(
        0, pairs[0], factor.counts_R.long()[pairs[1]]
    )
    return {group: int(lost[group]) for group in pairs[0].unique().tolist()}
