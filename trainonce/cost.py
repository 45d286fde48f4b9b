"""FLOPs (multiply-adds) and parameters of a masked model, differentiable in the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainonce.channels import Contraction, Partition
from trainonce.plan import Plan


def macs(partition: Partition, masks: Mapping[str, Tensor] | None = None) -> Tensor:
    """Multiply-adds of the model with some channels masked; groups without a mask count whole.

    Example: `cost.macs(partition, {"layer1.0.conv1": mask}).backward()` gives each channel's marginal cost.
    """
    return _total(partition.contractions, _alive(partition, masks or {}))


def parameters(partition: Partition, masks: Mapping[str, Tensor] | None = None) -> Tensor:
    """Number of parameters of the model with some channels masked."""
    return _total(partition.tensor_sizes, _alive(partition, masks or {}))


def masks_of(partition: Partition, plan: Plan) -> dict[str, Tensor]:
    """The plan as one mask per group that it cuts: 1 where the channel stays."""
    masks: dict[str, Tensor] = {}
    for group in partition.groups:
        if group.name in plan.kept:
            mask = torch.zeros(group.num_channels, dtype=torch.double)
            mask[list(plan.kept[group.name])] = 1
            masks[group.name] = mask
    return masks


def _alive(partition: Partition, masks: Mapping[str, Tensor]) -> Tensor:
    known = {group.name for group in partition.groups}
    if unknown := set(masks) - known:
        raise ValueError(f"there is no group {min(unknown)!r} in {partition.model}. Take the names from partition.groups.")
    for group in partition.groups:
        if group.name in masks and masks[group.name].shape != (group.num_channels,):
            found = tuple(masks[group.name].shape)
            raise ValueError(
                f"group {group.name!r} has {group.num_channels} channels, its mask has shape {found}. Give one entry per channel."
            )
    # float64 counts multiply-adds exactly up to 2^53.
    parts = [
        masks[group.name].double() if group.name in masks else torch.ones(group.num_channels, dtype=torch.double)
        for group in partition.groups
    ]
    return torch.cat([*parts, torch.ones(1, dtype=torch.double)])


def _total(contractions: Sequence[Contraction], alive: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.double)
    for contraction in contractions:
        size = torch.full((), float(contraction.coefficient), dtype=torch.double)
        for factor in contraction.factors:
            size = size * (factor.counts_R * alive[factor.channels_RL].prod(dim=1)).sum()
        total = total + size
    return total
