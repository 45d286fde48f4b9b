"""The interface of policies, which choose the units that stay."""

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
"""Takes masks, returns the loss with them and its gradient with respect to each mask."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What a policy can see of the run."""

    units: Units
    tensors: Mapping[str, nn.Parameter]
    budget: Budget
    seed: int
    num_updates: int
    """How many times `update` is called in this run."""

    progress: Callable[[], float]
    """How much of the search is done, from 0 to 1."""

    model: nn.Module
    """The model as it is now, without wrappers."""

    @property
    def available(self) -> Tensor:
        """The units that may still stay, one boolean each: not dropped by an earlier decision."""
        return self.budget.available

    @property
    def required(self) -> Tensor:
        """The units that can't go for now, one boolean each: their weights are frozen."""
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
    """Chooses which units stay. Subclasses define `scores`; everything else has a default."""

    search: Search

    uses_loss: bool = False
    """Whether the policy needs the loss on masked models, in `update`."""

    learns: bool = True
    """Whether many updates make a better choice; if so, a run with few of them gets a warning."""

    def start(self, search: Search) -> None:
        """Called once, when the run is attached."""
        self.search = search

    def follow(self, search: Search) -> None:
        """Called when units were dropped for good, or frozen; they keep their numbers."""
        self.search = search

    def observe(self) -> None:
        """Called after each optimizer step of the search, while gradients are still there."""
        return

    def update(self, evaluate: Evaluate) -> float | None:
        """Called every few steps of the search if `uses_loss`.

        Args:
            evaluate: Runs the model with masks, and returns its loss and the gradient for each mask.

        Returns:
            The policy's own loss; None if the update was skipped.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no update of its own. Write one, or leave uses_loss False."
        )

    @abstractmethod
    def scores(self) -> Tensor:
        """One number per unit: higher scores are kept first, as many as the budget allows."""

    def penalized(self) -> Tensor:
        """The units to pull during the search, one boolean each; none by default."""
        return torch.zeros(len(self.search.units), dtype=torch.bool)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        return
