"""Policies that keep the largest units: by norm of their weights, or by batch-norm scale."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.errors import SettingError
from trainonce.messages.plain_text import shorten
from trainonce.pruning.policies.policy import Policy, Search
from trainonce.pruning.policies.relative import relative


class FilterNorm(Policy):
    """Keeps the filters with the largest norm relative to their layer.

    L1: Li et al., "Pruning filters for efficient ConvNets", ICLR 2017. L2: He et al., "Soft filter pruning",
    IJCAI 2018.
    """

    def __init__(self, order: int = 2) -> None:
        if order not in (1, 2):
            raise SettingError(f"order must be 1 or 2, got {shorten(order)}. FilterNorm(1) is the L1 norm.")
        self._order = order

    def scores(self) -> Tensor:
        """The norm over all kernels and matrices that write to the unit, relative to its group."""
        powers = self.search.per_unit(
            lambda rows, _: rows.abs().pow(self._order).sum(dim=1), only_matrices=True
        )
        return relative(self.search, powers ** (1 / self._order))


class NormScale(Policy):
    """Keeps the channels with the largest batch-norm scale; filter norms decide in groups without one.

    Liu et al., "Learning efficient convolutional networks through network slimming", ICCV 2017.
    """

    def start(self, search: Search) -> None:
        """Find the scales of norms among the parameters: vectors named weight."""
        super().start(search)
        self._scales = {
            name
            for name, tensor in search.tensors.items()
            if tensor.dim() == 1 and name.rpartition(".")[2] == "weight"
        }

    def scores(self) -> Tensor:
        """The absolute scale, summed over the norms that write to the channel."""
        scale = self.search.per_unit(lambda rows, at: rows.abs().sum(dim=1) * (at.tensor in self._scales))
        norm = self.search.per_unit(lambda rows, _: rows.square().sum(dim=1)).sqrt()
        has_scale = self.search.units.per_group(scale) > 0
        return relative(self.search, torch.where(has_scale[self.search.units.group_of], scale, norm))


class Uniform(Policy):
    """Keeps the same share of each group: the units with the largest norm."""

    def scores(self) -> Tensor:
        """The unit's rank in its group as a share of the group, so one threshold cuts all groups alike."""
        norms = self.search.per_unit(lambda rows, _: rows.square().sum(dim=1)).sqrt()
        units = self.search.units
        return (units.rank_in_group(-norms) + 1).float() / units.sizes[units.group_of]
