"""FLOPs (multiply-adds) and parameters of a masked model, differentiable in the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainonce.structure.channels import Contraction
from trainonce.structure.partition import Partition
from trainonce.structure.plan import Plan


def macs(partition: Partition, masks: Mapping[str, Tensor] | None = None) -> Tensor:
    """Multiply-adds of the model with some channels masked; groups without a mask count whole.

    They are for as many objects as the model found on the example that it was inspected with, where that
    depends on data.

    Example: `cost.macs(partition, {"layer1.0.conv1": mask}).backward()` gives each channel's marginal cost.
    """
    return Meter.of(partition.contractions)(_alive(partition, masks or {}))


def parameters(partition: Partition, masks: Mapping[str, Tensor] | None = None) -> Tensor:
    """Number of parameters of the model with some channels masked."""
    return Meter.of(partition.tensor_sizes)(_alive(partition, masks or {}))


def masks_of(partition: Partition, plan: Plan) -> dict[str, Tensor]:
    """The plan as one mask per group that it cuts: 1 where the channel stays."""
    masks: dict[str, Tensor] = {}
    for group in partition.groups:
        if group.name in plan.kept:
            mask = torch.zeros(group.num_channels, dtype=torch.double)
            mask[list(plan.kept[group.name])] = 1
            masks[group.name] = mask
    return masks


@dataclass(frozen=True, slots=True, eq=False)
class Meter:
    """Contractions packed into a few tensors, so that their total is a handful of operations whatever the model's depth.

        total = sum_c coefficient_c * prod_k alive(factor_ck)

    Shapes: N rows of all factors, L masks multiplied in a row, C contractions, K factors in each (padded with a factor that is 1).
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
        """The total; `alive` has one float64 number per channel of the partition and a last 1 for 'always'."""
        rows = self.counts_N * alive[self.channels_NL].prod(dim=1)
        sizes = torch.zeros(self.num_factors, dtype=torch.double).index_add(0, self.factor_N, rows)
        return (self.coefficients_C * sizes[self.factors_CK].prod(dim=1)).sum()


def _alive(partition: Partition, masks: Mapping[str, Tensor]) -> Tensor:
    known = {group.name for group in partition.groups}
    if unknown := set(masks) - known:
        raise ValueError(
            f"there is no group {min(unknown)!r} in {partition.model}. Take the names from partition.groups."
        )
    for group in partition.groups:
        if group.name in masks and masks[group.name].shape != (group.num_channels,):
            found = tuple(masks[group.name].shape)
            raise ValueError(
                f"group {group.name!r} has {group.num_channels} channels, its mask has shape {found}. Give "
                "one entry per channel."
            )
    # float64 counts multiply-adds exactly up to 2^53.
    parts = [
        masks[group.name].double()
        if group.name in masks
        else torch.ones(group.num_channels, dtype=torch.double)
        for group in partition.groups
    ]
    return torch.cat([*parts, torch.ones(1, dtype=torch.double)])
