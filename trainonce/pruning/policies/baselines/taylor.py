"""A policy that keeps the units whose removal would change the loss most, from training gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.pruning.policies.policy import Policy, Search
from trainonce.pruning.policies.relative import relative
from trainonce.pruning.units import Rows, as_matrix

_MEMORY = 0.99
"""Decay of the running average: early gradients are large and say little about the model that is cut."""


class Taylor(Policy):
    """Keeps the units whose removal would change the loss most, to first order.

    Averaged over the last hundred steps or so. Molchanov et al., "Importance estimation for neural network
    pruning", CVPR 2019: (sum of gradient * weight)^2, with all layers ranked together. With `per_layer`, a
    score is relative to the mean of its layer.
    """

    def __init__(self, *, per_layer: bool = False) -> None:
        self._per_layer = per_layer

    def start(self, search: Search) -> None:
        """Start with nothing observed."""
        super().start(search)
        self._average = torch.zeros(len(search.units), dtype=torch.double)

    def observe(self) -> None:
        """Average the squared sum of gradient times weight for each unit."""

        def products(rows: Tensor, at: Rows) -> Tensor:
            gradient = self.search.tensors[at.tensor].grad
            if gradient is None:
                return torch.zeros(len(rows), device=rows.device)
            return (rows * as_matrix(at.take(gradient))).sum(dim=1)

        self._average = _MEMORY * self._average + (1 - _MEMORY) * self.search.per_unit(products).square()

    def scores(self) -> Tensor:
        """The average: how much removing the unit would change the loss."""
        return relative(self.search, self._average) if self._per_layer else self._average

    def state_dict(self) -> dict[str, Any]:
        """The average."""
        return {"average": self._average}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        self._average = state["average"].clone()
