"""What is dropped for good: decided when it is due, and again where frozen weights can't follow."""

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
    """Which units stay, as masks of 0 and 1; 0 means gone for good."""

    masks: Tensor
    at: int | None = None
    """The step it was made at; None while nothing is decided."""

    is_final: bool = False
    """Whether it meets the budget; otherwise it goes half of the way."""

    @classmethod
    def undecided(cls, num_units: int) -> Decision:
        """No decision yet: everything stays."""
        return cls(torch.ones(num_units, dtype=torch.double))

    def is_due(self, timetable: Timetable, step: int) -> bool:
        """Whether there is a next decision at this step."""
        at = timetable.first_cut_from if self.at is None else timetable.settle_from
        return not self.is_final and step >= min(at, timetable.settle_from)

    def next(self, budget: Budget, scores: Scores, timetable: Timetable, step: int) -> Decision | None:
        """The decision that is due at this step, within what this one keeps; None if none is."""
        if not self.is_final and step >= timetable.settle_from:
            if not budget.is_reachable:
                # Out of reach with what is frozen now, but that may be trained again. `finish` checks.
                budget = budget.requiring(torch.zeros_like(budget.required))
            return Decision(budget.choose(same_everywhere(scores())), timetable.settle_from, is_final=True)
        if self.at is None and step >= timetable.first_cut_from:
            # Half of the way, as a factor: both cuts keep the same share of what they find.
            return Decision(
                budget.choose(same_everywhere(scores()), share=budget.share**0.5), timetable.first_cut_from
            )
        return None

    def around(self, stuck: Tensor, budget: Budget, scores: Scores, step: int) -> Decision | None:
        """The decision with `stuck` units kept after all; a final one drops others instead.

        None if the budget can't be met that way. Other units that were to go are at zero by now, and go.
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
