"""A policy that drops redundant filters."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.policies.relative import relative
from trainonce.pruning.units import as_matrix


class GeometricMedian(Policy):
    """Drops the filters closest to the geometric median of their layer: the others can replace them.

    He et al., "Filter pruning via geometric median" (FPGM), CVPR 2019: a filter's score is the sum of its
    distances to all others.
    """

    def scores(self) -> Tensor:
        """The sum of distances to the other units of the group, over kernels and matrices."""
        units = self.search.units
        squares: dict[int, Tensor] = {}
        for rows in units.writers:
            parameter = self.search.tensors[rows.tensor].detach()
            if parameter.dim() < 2:
                continue
            picked = as_matrix(rows.take(parameter))
            for number in units.group_of[rows.units].unique().tolist():
                here = (units.group_of[rows.units] == number) & self.search.available[rows.units]
                self._add_distances(squares, number, picked[here], rows.units[here])
        scores = torch.zeros(len(units), dtype=torch.double)
        for number, total in squares.items():
            scores[(units.group_of == number) & self.search.available] = total.clamp_min(0).sqrt().sum(dim=1)
        return relative(self.search, scores)

    def _add_distances(self, squares: dict[int, Tensor], number: int, rows: Tensor, units: Tensor) -> None:
        members = ((self.search.units.group_of == number) & self.search.available).nonzero().flatten()
        size, local = len(members), torch.searchsorted(members, units)
        # Heads have several rows each: the k-th row of one is compared with the k-th of another.
        order = torch.argsort(local, stable=True)
        stacked = (
            rows[order].reshape(size, -1)
            if len(local) % size == 0 and bool((local.bincount(minlength=size) == len(local) // size).all())
            else None
        )
        if stacked is not None:
            distances = torch.cdist(stacked.double().cpu(), stacked.double().cpu()).square()
            squares[number] = squares.get(number, torch.zeros(size, size, dtype=torch.double)) + distances
