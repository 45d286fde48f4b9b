"""Multiply-adds and parameters of a masked model, differentiable with respect to the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainonce.errors import PlanError
from trainonce.structure.channels import Contraction
from trainonce.structure.partition import Partition
from trainonce.structure.plan import Plan


def macs(partition: Partition, masks: Mapping[str, Tensor] | None = None) -> Tensor:
    """Multiply-adds of the model with some channels masked.

    Where the cost depends on data (a detector that finds more or fewer objects), it is that of the example
    that the model was inspected with.

    Example: `cost.macs(partition, {"layer1.0.conv1": mask}).backward()` gives each channel's marginal cost.

    Args:
        partition: What `trainonce.inspect` found.
        masks: One mask per group, 1 where a channel stays; groups without a mask count in full.
    """
    return Meter.of(partition.contractions)(_alive(partition, masks or {}))


def parameters(partition: Partition, masks: Mapping[str, Tensor] | None = None) -> Tensor:
    """Number of parameters of the model with some channels masked; see `macs` for the arguments."""
    return Meter.of(partition.tensor_sizes)(_alive(partition, masks or {}))


def masks_of(partition: Partition, plan: Plan) -> dict[str, Tensor]:
    """One mask per group that the plan cuts: 1 where a channel stays."""
    masks: dict[str, Tensor] = {}
    for group in partition.groups:
        if group.name in plan.kept:
            mask = torch.zeros(group.num_channels, dtype=torch.double)
            mask[list(plan.kept[group.name])] = 1
            masks[group.name] = mask
    return masks


@dataclass(frozen=True, slots=True, eq=False)
class Meter:
    """Contractions packed into a few tensors: their total takes a handful of operations at any depth.

        total = sum_c coefficient_c * prod_k alive(factor_ck)

    Shapes: N rows of all factors, L masks multiplied in a row, C contractions, K factors in each (padded
    with a factor that is 1).
    """

    counts_N: Tensor
    channels_NL: Tensor
    factor_N: Tensor
    factors_CK: Tensor
    coefficients_C: Tensor
    num_factors: int

    @classmethod
    def of(cls, contractions: Sequence[Contraction]) -> Meter:
        """Pack contractions; the empty product, factor 0, is one row that is always alive."""
        counts, channels, owner = (
            [torch.ones(1, dtype=torch.double)],
            [torch.full((1, 1), -1)],
            [torch.zeros(1, dtype=torch.long)],
        )
        members: list[list[int]] = []
        num_factors = 1
        for contraction in contractions:
            members.append(list(range(num_factors, num_factors + len(contraction.factors))))
            for factor in contraction.factors:
                counts.append(factor.counts_R.double())
                channels.append(factor.channels_RL)
                owner.append(torch.full((len(factor.counts_R),), num_factors))
                num_factors += 1
        deepest = max(rows.shape[1] for rows in channels)
        longest = max((len(row) for row in members), default=1)
        return cls(
            counts_N=torch.cat(counts),
            channels_NL=torch.cat(
                [torch.nn.functional.pad(rows, (0, deepest - rows.shape[1]), value=-1) for rows in channels]
            ),
            factor_N=torch.cat(owner),
            factors_CK=torch.tensor(
                [row + [0] * (longest - len(row)) for row in members], dtype=torch.long
            ).reshape(len(members), longest),
            coefficients_C=torch.tensor(
                [float(contraction.coefficient) for contraction in contractions], dtype=torch.double
            ),
            num_factors=num_factors,
        )

    def __call__(self, alive: Tensor) -> Tensor:
        """The total; `alive` has one float64 number per channel, then a 1 for what is always alive."""
        rows = self.counts_N * alive[self.channels_NL].prod(dim=1)
        sizes = torch.zeros(self.num_factors, dtype=torch.double).index_add(0, self.factor_N, rows)
        return (self.coefficients_C * sizes[self.factors_CK].prod(dim=1)).sum()


def _alive(partition: Partition, masks: Mapping[str, Tensor]) -> Tensor:
    known = {group.name for group in partition.groups}
    if unknown := set(masks) - known:
        raise PlanError(
            f"{partition.model} has no group {min(unknown)!r}. The names are in partition.groups."
        )
    for group in partition.groups:
        if group.name in masks and masks[group.name].shape != (group.num_channels,):
            found = tuple(masks[group.name].shape)
            raise PlanError(
                f"group {group.name!r} has {group.num_channels} channels, but its mask has shape {found}. "
                "Pass one entry per channel."
            )
    # float64 counts multiply-adds exactly up to 2^53.
    parts = [
        masks[group.name].double()
        if group.name in masks
        else torch.ones(group.num_channels, dtype=torch.double)
        for group in partition.groups
    ]
    return torch.cat([*parts, torch.ones(1, dtype=torch.double)])
