"""Random masks."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.pruning.units import Units


def random_masks(units: Units, seed: int) -> Tensor:
    """Zeros and ones, at least one of each group open."""
    masks = (torch.rand(len(units), generator=torch.Generator().manual_seed(seed)) < 0.6).double()
    first = torch.cat([torch.ones(1, dtype=torch.bool), units.group_of[1:] != units.group_of[:-1]])
    return torch.where(first[: len(units)], torch.ones_like(masks), masks)
