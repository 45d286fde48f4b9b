"""Exponential moving average (EMA) of the weights, in a second model that is cut with the first."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from trainonce.pruning.guards.copies import follows_by_itself
from trainonce.structure.plan import Plan
from trainonce.surgery.slicing import apply_plan
from trainonce.training.loop.buffers import copy_buffers


class Average:
    """The EMA of a model; make it before a pruner is attached."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        with torch.no_grad():
            # With gradients, a copied script module gets non-leaf parameters.
            self.model = copy.deepcopy(model).eval().requires_grad_(False)
        follows_by_itself(self.model)
        self._decay = decay
        self._num_updates = 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move towards the model: average <- d * average + (1 - d) * model.

        d = min(decay, (1 + n) / (10 + n)) after n updates: the first weights are noise. Buffers are copied.
        """
        self._num_updates += 1
        decay = min(self._decay, (1 + self._num_updates) / (10 + self._num_updates))
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - decay)
        copy_buffers(model, self.model)

    def release(self, model: nn.Module) -> None:
        """Set requires_grad as in the model."""
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.requires_grad_(theirs.requires_grad)

    def cut(self, plan: Plan) -> None:
        """Cut the average as the model was cut."""
        apply_plan(self.model, plan)

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights and the number of updates."""
        return {"num_updates": self._num_updates, "model": self.model.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state_dict of the same shapes."""
        self._num_updates = int(state["num_updates"])
        self.model.load_state_dict(state["model"])
