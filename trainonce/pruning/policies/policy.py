"""What decides which units stay.

One small interface, so that ways of choosing can be compared on equal terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.pruning.budget import Budget
from trainonce.pruning.units import Rows, Units

Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From masks to the loss with them and its gradient with respect to each."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What a policy may look at."""

    units: Units
    tensors: Mapping[str, nn.Parameter]
    budget: Budget
    seed: int
    num_updates: int
    """How often `update` will be called in this run."""

    progress: Callable[[], float]
    """How much of the search is over, from 0 to 1."""

    @property
    def available(self) -> Tensor:
        """The units that may still stay, one boolean each: an early decision stands."""
        return self.budget.available

    @property
    def required(self) -> Tensor:
        """The units that can't go for now, one boolean each: their weights were frozen during the run."""
        return self.budget.required

    def per_unit(self, of_rows: Callable[[Tensor, Rows], Tensor], *, only_matrices: bool = False) -> Tensor:
        """Add up a number per row (from the rows of one writer, first axis first) to a number per unit."""
        total = torch.zeros(len(self.units), dtype=torch.double)
        for rows in self.units.writers:
            parameter = self.tensors[rows.tensor].detach()
            if only_matrices and parameter.dim() < 2:
                continue
            picked = parameter.index_select(rows.axis, rows.positions.to(parameter.device)).movedim(
                rows.axis, 0
            )
            total.index_add_(
                0,
                rows.units,
                of_rows(picked.flatten(1) if picked.dim() > 1 else picked[:, None], rows).double().cpu(),
            )
        return total


class Policy(ABC):
    """Chooses which units stay. A subclass gives scores; everything else has a sensible default."""

    search: Search

    uses_loss: bool = False
    """Whether `update` needs the loss on masked models."""

    def start(self, search: Search) -> None:
        """Called once, when the policy is attached to a model."""
        self.search = search

    def follow(self, search: Search) -> None:
        """Called when part of the units has been dropped for good.

        The numbering is the same, `search.available` tells what is left.
        """
        self.search = search

    def observe(self) -> None:
        """Called after every optimizer step of the search, while gradients are still there."""
        return

    def update(self, evaluate: Evaluate) -> float | None:
        """Called now and then during the search if the policy uses the loss.

        Returns its own loss, None if the update was skipped.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no update of its own. Write one, or leave uses_loss False."
        )

    @abstractmethod
    def scores(self) -> Tensor:
        """One number per unit: higher scores are kept first. The budget draws the line."""

    def penalised(self) -> Tensor:
        """The units that are pulled while the search goes on; by default none."""
        return torch.zeros(len(self.search.units), dtype=torch.bool)

    def state_dict(self) -> dict[str, Any]:
        """Everything that resuming needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        return
