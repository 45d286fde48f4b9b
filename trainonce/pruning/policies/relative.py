"""Scores that can be compared across layers."""

from __future__ import annotations

from torch import Tensor

from trainonce.pruning.policies.policy import Search


def relative(search: Search, measure: Tensor) -> Tensor:
    """A measure of each unit, divided by its mean over the units that are left in the group."""
    measure = measure * search.available
    mean = search.units.per_group(measure) / search.units.per_group(search.available.to(measure.dtype))
    return measure / mean.clamp_min(1e-30)[search.units.group_of]
