"""What goes for good, from when on, and whether that is all.

Decided when it is due, and again where frozen weights can't follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainonce.pruning.budget import Budget
from trainonce.pruning.distributed import same_everywhere
from trainonce.pruning.schedule import Timetable

Scores = Callable[[], Tensor]
"""One number per unit; higher scores are kept first."""


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One mask per unit."""

    masks: Tensor
    at: int | None = None
    """The step from which on it stands; None while nothing is decided."""

    is_final: bool = False
    """Whether the budget is met; else this is half of the way."""

    @classmethod
    def undecided(cls, num_units: int) -> Decision:
        """Nothing is decided."""
        return cls(torch.ones(num_units, dtype=torch.double))

    def next(self, budget: Budget, scores: Scores, timetable: Timetable, step: int) -> Decision | None:
        """The decision that is due at this step, within this one; None if none is."""
        if not self.is_final and step >= timetable.settle_from:
            if not budget.is_reachable:
                # Not with what is frozen at the moment: it is pulled if it is trained again before the end,
                # and `finish` looks.
                budget = budget.requiring(torch.zeros_like(budget.required))
            return Decision(budget.choose(same_everywhere(scores())), timetable.settle_from, is_final=True)
        if self.at is None and step >= timetable.first_cut_from:
            # Half of the way, as a factor: what the first cut and the last leave over is the same share of
            # what was there.
            return Decision(
                budget.choose(same_everywhere(scores()), share=budget.share**0.5), timetable.first_cut_from
            )
        return None

    def around(self, stuck: Tensor, budget: Budget, scores: Scores, step: int) -> Decision | None:
        """The decision with units kept that can't go; others go instead, if this was the final one.

        None if the budget forbids it.

        What has been decided to go is at zero by now and goes in any case.
        """
        left = self.masks.maximum(stuck.double())
        if not self.is_final:
            return replace(self, masks=left)
        budget = budget.within(left)
        return (
            Decision(budget.choose(same_everywhere(scores())), step, is_final=True)
            if budget.is_reachable
            else None
        )
