"""The units of each group from the highest score to the lowest, so that masks become one count per group."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.errors import PrunerError
from trainonce.pruning.units import Units


class Ranking:
    """Scores in order; units that are not `available` rank below all others.

    `required` units are always counted as kept; they come as whole groups.
    """

    def __init__(self, units: Units, scores: Tensor, *, available: Tensor, required: Tensor) -> None:
        if scores.shape != (len(units),) or bool(torch.isnan(scores).any()):
            raise PrunerError(
                f"a policy's scores must be {len(units)} numbers, one per unit, got shape "
                f"{tuple(scores.shape)} or NaN. Check what its scores() returns."
            )
        scores = scores.detach().double().cpu()
        self._scores = torch.where(available, scores, scores.min() - 1)
        self.sizes = units.per_group(available.long())
        """For each group, how many units may stay."""
        self.is_required = units.per_group(required.long()) > 0
        """For each group, whether all of them must stay."""
        self._units = units
        self._best = torch.argsort(self._scores, descending=True, stable=True)
        self._rank = units.rank_in_group(self._scores)
        self._pieces = self._scores[units.best_first(self._scores)].split(units.sizes.tolist())

    def scores_of(self, group: int) -> Tensor:
        """The scores of a group, highest first."""
        return self._pieces[group]

    def score_below(self, num_best: int) -> float:
        """A score halfway between the last of the best units and the first of the rest."""
        ranked = self._scores[self._best]
        above = ranked[max(0, num_best - 1)]
        below = ranked[min(len(ranked) - 1, num_best)]
        if num_best == 0:
            return float(above) + 1
        return float(below) - 1 if num_best == len(ranked) else float((above + below) / 2)

    def counts_of_best(self, num_best: int) -> Tensor:
        """How many of the best units lie in each group, at least one."""
        counts = torch.bincount(
            self._units.group_of[self._best[:num_best]], minlength=len(self._units.groups)
        )
        return torch.where(self.is_required, self.sizes, counts.clamp_min(1))

    def masks(self, counts: Tensor) -> Tensor:
        """Masks that keep the best `counts` units of each group."""
        return (self._rank < counts[self._units.group_of]).double()
