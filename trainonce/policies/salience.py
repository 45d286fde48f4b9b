"""Choosing by a measure of importance: the classic criteria. The model trains freely until the decision, then what scores least goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.policies.policy import Policy, Search
from trainonce.units import Rows


def _relative(search: Search, measure: Tensor) -> Tensor:
    """Divided by the mean of what is left of the group: layers of different scale become comparable."""
    measure = measure * search.available
    mean = search.units.per_group(measure) / search.units.per_group(search.available.to(measure.dtype))
    return measure / mean.clamp_min(1e-30)[search.units.group_of]


class FilterNorm(Policy):
    """Keeps the filters of largest norm, relative to their layer.

    L1: Li et al., "Pruning filters for efficient ConvNets", ICLR 2017. L2: He et al., "Soft filter pruning", IJCAI 2018.
    """

    def __init__(self, order: int = 2) -> None:
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {order!r}. FilterNorm(1) is the L1 norm.")
        self._order = order

    def scores(self) -> Tensor:
        """The norm over all writers of the unit."""
        powers = self.search.per_unit(lambda rows, _: rows.abs().pow(self._order).sum(dim=1))
        return _relative(self.search, powers ** (1 / self._order))


class NormScale(Policy):
    """Keeps the channels with the largest batch-norm scale; groups without one by the norm of their filters.

    Liu et al., "Learning efficient convolutional networks through network slimming", ICCV 2017.
    """

    def start(self, search: Search) -> None:
        """Find the norms' scales among the writers: vectors called weight."""
        super().start(search)
        self._scales = {name for name, tensor in search.tensors.items() if tensor.dim() == 1 and name.rpartition(".")[2] == "weight"}

    def scores(self) -> Tensor:
        """The absolute scale; where several norms write to a channel, their sum."""
        scale = self.search.per_unit(lambda rows, at: rows.abs().sum(dim=1) * (at.tensor in self._scales))
        norm = self.search.per_unit(lambda rows, _: rows.square().sum(dim=1)).sqrt()
        has_scale = self.search.units.per_group(scale) > 0
        return _relative(self.search, torch.where(has_scale[self.search.units.group_of], scale, norm))


class GeometricMedian(Policy):
    """Drops the filters nearest the geometric median of their layer: the others can stand in for them.

    He et al., "Filter pruning via geometric median" (FPGM), CVPR 2019: a filter's score is the sum of its distances to all others.
    """

    def scores(self) -> Tensor:
        """The sum of distances to the other units of the group, over matrices and kernels."""
        units = self.search.units
        squares: dict[int, Tensor] = {}
        for rows in units.writers:
            parameter = self.search.tensors[rows.tensor].detach()
            if parameter.dim() < 2:
                continue
            picked = parameter.index_select(rows.axis, rows.positions.to(parameter.device)).movedim(rows.axis, 0).flatten(1)
            for number in units.group_of[rows.units].unique().tolist():
                here = (units.group_of[rows.units] == number) & self.search.available[rows.units]
                self._add_distances(squares, number, picked[here], rows.units[here])
        scores = torch.zeros(len(units), dtype=torch.double)
        for number, total in squares.items():
            scores[(units.group_of == number) & self.search.available] = total.clamp_min(0).sqrt().sum(dim=1)
        return _relative(self.search, scores)

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


class Taylor(Policy):
    """Keeps the units whose removal would change the loss most, to first order, averaged over the search.

    Molchanov et al., "Importance estimation for neural network pruning", CVPR 2019: (sum of gradient * weight)^2.
    """

    def start(self, search: Search) -> None:
        """Begin with nothing observed."""
        super().start(search)
        self._total = torch.zeros(len(search.units), dtype=torch.double)

    def observe(self) -> None:
        """Add the squared sum of gradient times weight of every unit."""

        def products(rows: Tensor, at: Rows) -> Tensor:
            gradient = self.search.tensors[at.tensor].grad
            if gradient is None:
                return torch.zeros(len(rows), device=rows.device)
            picked = gradient.index_select(at.axis, at.positions.to(gradient.device)).movedim(at.axis, 0)
            return (rows * (picked.flatten(1) if picked.dim() > 1 else picked[:, None])).sum(dim=1)

        self._total += self.search.per_unit(products).square()

    def scores(self) -> Tensor:
        """The average so far, relative to the group."""
        return _relative(self.search, self._total)

    def state_dict(self) -> dict[str, Any]:
        """What was observed."""
        return {"total": self._total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self._total = state["total"].clone()


class RandomChoice(Policy):
    """Keeps random units: the baseline that every criterion has to beat."""

    def scores(self) -> Tensor:
        """Noise from the run's seed, the same whenever it is asked for."""
        return torch.rand(len(self.search.units), generator=torch.Generator().manual_seed(self.search.seed))


class Uniform(Policy):
    """Keeps the same share of every group, the units of largest norm in each."""

    def scores(self) -> Tensor:
        """The unit's rank in its group, as a share: one threshold then cuts every group alike."""
        norms = self.search.per_unit(lambda rows, _: rows.square().sum(dim=1)).sqrt()
        scores = torch.zeros(len(norms))
        for number, group in enumerate(self.search.units.groups):
            here = self.search.units.group_of == number
            scores[here] = (norms[here].argsort().argsort() + 1).float() / group.num_channels
        return scores
