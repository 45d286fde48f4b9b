"""An exponential average of the weights.

Takes the model after each step, holds a second model of the same shape.
"""

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
    """The average; made before a pruner is attached, cut with the model."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        with torch.no_grad():
            # With gradients, the copy of a scripted module has parameters that are no leaves, whose flag is
            # fixed.
            self.model = copy.deepcopy(model).eval().requires_grad_(False)
        follows_by_itself(self.model)
        self._decay = decay
        self._num_updates = 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move towards the model.

        Average <- d * average + (1 - d) * model, with d = min(decay, (1 + n) / (10 + n)).

        A short memory at first: the first weights are noise. Whole numbers and running statistics are copied.
        """
        self._num_updates += 1
        decay = min(self._decay, (1 + self._num_updates) / (10 + self._num_updates))
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - decay)
        copy_buffers(model, self.model)

    def release(self, model: nn.Module) -> None:
        """Let those parameters be trained again that are trained in the model."""
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.requires_grad_(theirs.requires_grad)

    def cut(self, plan: Plan) -> None:
        """Take out what was taken out of the model.

        What the average still held of it is lost: the model has it at zero.
        """
        apply_plan(self.model, plan)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers."""
        return {"num_updates": self._num_updates, "model": self.model.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; the model must have the state's shapes."""
        self._num_updates = int(state["num_updates"])
        self.model.load_state_dict(state["model"])
