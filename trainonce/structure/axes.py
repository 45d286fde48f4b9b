"""What masks leave of every axis of a model's tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trainonce.errors import PlanError
from trainonce.structure.channels import AxisCut, Role
from trainonce.structure.partition import Partition


def axis_cuts(partition: Partition, alive: Mapping[str, Tensor]) -> tuple[AxisCut, ...]:
    """What stays of each axis that loses something; one boolean per channel of every group."""
    kept_on_axis: dict[tuple[str, int], Tensor] = {}
    silenced: dict[tuple[str, int], bool] = {}
    for group in partition.groups:
        if bool(alive[group.name].all()):
            continue
        for part in group.slices:
            key = (part.tensor, part.axis)
            if key not in kept_on_axis:
                kept_on_axis[key] = torch.ones(partition.shapes[part.tensor][part.axis], dtype=torch.bool)
                silenced[key] = part.role is Role.WRITER
            kept_on_axis[key][part.positions] &= alive[group.name][part.channels]
    for tensor, axis in kept_on_axis:
        if not bool(kept_on_axis[tensor, axis].any()):
            raise PlanError(
                f"the plan empties axis {axis} of {tensor}: nothing would pass through. Keep at least one "
                "channel that uses it."
            )
    return tuple(
        AxisCut(
            tensor=tensor,
            axis=axis,
            kept=tuple(kept.nonzero().flatten().tolist()),
            silenced=silenced[tensor, axis],
        )
        for (tensor, axis), kept in kept_on_axis.items()
    )
