"""Scores that can be compared across layers.

Takes a measure of each unit, gives it relative to what is left of its group.
"""

from __future__ import annotations

from torch import Tensor

from trainonce.pruning.policies.policy import Search


def relative(search: Search, measure: Tensor) -> Tensor:
    """Divided by the mean of what is left of the group: layers of different scale become comparable."""
    measure = measure * search.available
    mean = search.units.per_group(measure) / search.units.per_group(search.available.to(measure.dtype))
    return measure / mean.clamp_min(1e-30)[search.units.group_of]
