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
from trainonce.pruning.units import Rows, Units, as_matrix

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
        """One number per unit, summed over its rows.

        Args:
            of_rows: Takes the rows of one parameter as a matrix, and where they lie; gives one number per
                row.
            only_matrices: Skip vectors: biases, and the scales and shifts of norms.
        """

        def numbers(rows: Tensor, at: Rows) -> Tensor:
            if only_matrices and rows.dim() < 2:
                return torch.zeros(len(rows))
            return of_rows(as_matrix(rows), at)

        return self.units.sum_rows(self.tensors, numbers)


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

    def penalized(self) -> Tensor:
        """The units that are pulled while the search goes on; by default none."""
        return torch.zeros(len(self.search.units), dtype=torch.bool)

    def state_dict(self) -> dict[str, Any]:
        """Everything that resuming needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        return
