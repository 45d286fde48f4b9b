"""The units of each group from the highest score to the lowest, so that masks become one width per family."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.errors import PrunerError
from trainonce.pruning.units import Units
from trainonce.pruning.widths import Widths


class Ranking:
    """Scores in order; units that are not `available` rank below all others.

    `required` units are always counted as kept; they come as whole groups.
    """

    def __init__(
        self, units: Units, widths: Widths, scores: Tensor, *, available: Tensor, required: Tensor
    ) -> None:
        if scores.shape != (len(units),) or bool(torch.isnan(scores).any()):
            raise PrunerError(
                f"a policy's scores must be {len(units)} numbers, one per unit, got shape "
                f"{tuple(scores.shape)} or NaN. Check what its scores() returns."
            )
        scores = scores.detach().double().cpu()
        self._scores = torch.where(available, scores, scores.min() - 1)
        self._sizes = units.per_group(available.long())
        self.sizes = widths.within(self._sizes)
        """For each family, how wide it may be."""
        self.is_required = widths.any_of(units.per_group(required.long()) > 0)
        """For each family, whether all of it must stay."""
        self._widths = widths
        self._units = units
        self._best = torch.argsort(self._scores, descending=True, stable=True)
        self._rank = units.rank_in_group(self._scores)
        self._pieces = self._scores[units.best_first(self._scores)].split(units.sizes.tolist())

    def mean_score(self, family: int, narrow: int, wide: int) -> float:
        """The mean score of the units that tell one width of a family from a larger one."""
        steps = self._widths.steps.tolist()
        parts = [
            self._pieces[group][narrow * steps[group] : wide * steps[group]]
            for group in self._widths.members[family]
        ]
        return float((parts[0] if len(parts) == 1 else torch.cat(parts)).mean())

    def score_below(self, num_best: int) -> float:
        """A score halfway between the last of the best units and the first of the rest."""
        ranked = self._scores[self._best]
        above = ranked[max(0, num_best - 1)]
        below = ranked[min(len(ranked) - 1, num_best)]
        if num_best == 0:
            return float(above) + 1
        return float(below) - 1 if num_best == len(ranked) else float((above + below) / 2)

    def widths_of_best(self, num_best: int) -> Tensor:
        """How wide each family is with so many of the best units; at least 1."""
        counts = torch.bincount(
            self._units.group_of[self._best[:num_best]], minlength=len(self._units.groups)
        )
        widths = self._widths.of_counts(counts).clamp_min(1).minimum(self.sizes)
        return torch.where(self.is_required, self.sizes, widths)

    def masks(self, widths: Tensor) -> Tensor:
        """Masks that keep the best units of each group, as many as its family is wide."""
        counts = self._widths.counts(widths)
        counts = torch.where(self.is_required[self._widths.family_of], self._sizes, counts)
        return (self._rank < counts[self._units.group_of]).double()
