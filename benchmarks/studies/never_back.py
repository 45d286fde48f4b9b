"""The default controller without second thoughts: what the masks dropped once stays dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.pruning.policies import AnchoredController, Search
from trainonce.pruning.policies.policy import Evaluate

_FAR_BELOW = 1e3
"""No noise and no update brings a logit back from there."""


class NeverBack(AnchoredController):
    """Every unit that was below the line at an update stays below it."""

    def start(self, search: Search) -> None:
        """Nothing is gone yet."""
        super().start(search)
        self._gone = torch.zeros(len(search.units), dtype=torch.bool)

    def update(self, evaluate: Evaluate) -> float | None:
        """What is below the line after it is gone; asking for masks in between changes nothing."""
        loss = super().update(evaluate)
        self._gone = self.penalized()
        return loss

    def penalized(self) -> Tensor:
        """What is below the line now, and what has been."""
        return self._gone | super().penalized()

    def _expected(self) -> Tensor:
        return super()._expected() - _FAR_BELOW * self._gone

    def state_dict(self) -> dict[str, Any]:
        """With what is gone."""
        return super().state_dict() | {"gone": self._gone}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        super().load_state_dict(state)
        self._gone = state["gone"].clone()
