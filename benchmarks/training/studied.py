"""A variant in the harness.

Trains as its data says, and notes what the masks keep and how good the masked model is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import trainonce
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.contender import Batch, Contender
from benchmarks.training.ours import Ours
from trainonce.structure.succession import plan_after


class StudiedDense(Contender):
    """Nothing is pruned; only the recipe is the variant's."""

    def prepare(self) -> None:
        """With another recipe."""
        self.recipe = CONTENDERS[self.configuration.contender].settings.recipe
        super().prepare()


class Studied(Ours):
    """Ours with notes.

    As in the paper, a model whose masks are not decided yet is also measured with them: what they drop is
    silenced in a copy.
    """

    def prepare(self) -> None:
        """With empty notes."""
        super().prepare()
        self._notes: dict[str, Any] = {"penalties": [], "masked_accuracies": [], "masks_keep": None}
        self._was_dropped = torch.zeros_like(self._masks())

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """A step, and notes after an update of the controller and at the end of an epoch."""
        steps_per_epoch = self.total_steps // self.configuration.epochs
        draws = []

        def noted_draw() -> Batch:
            draws.append(number)
            return draw_held()

        loss = super().step(number, batch, noted_draw)
        ends_epoch = (number + 1) % steps_per_epoch == 0
        if draws or ends_epoch:
            self._notes["penalties"].append([(number + 1) / steps_per_epoch, self._penalty()])
        if draws and self.pruner.phase is trainonce.Phase.SEARCH:
            self._was_dropped = torch.maximum(self._was_dropped, 1 - self._masks())
            # The last update of the search tells how near the controller came to the budget by itself.
            self._notes["masks_keep"] = self.pruner.keep_now
        if ends_epoch:
            self._notes["masked_accuracies"].append(self._masked_accuracy())
        return loss

    def facts(self) -> dict[str, Any]:
        """The notes, and how many of the units that the masks once dropped are in the small model."""
        counts = {
            "num_dropped_once": int(self._was_dropped.sum()),
            "num_came_back": int((self._was_dropped * self._masks()).sum()),
            "num_dead": sum(
                _num_dead(layer.weight) for layer in self.model.modules() if isinstance(layer, nn.Conv2d)
            ),
        }
        return {**super().facts(), **self._notes, **counts}

    def state_dict(self) -> dict[str, Any]:
        """With the notes so far."""
        return {**super().state_dict(), "notes": self._notes, "was_dropped": self._was_dropped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the notes."""
        super().load_state_dict(state)
        self._notes, self._was_dropped = state["notes"], state["was_dropped"]

    def _masks(self) -> torch.Tensor:
        return torch.cat(list(self.pruner.masks.values()))

    def _penalty(self) -> float:
        """The paper's regulariser of the masks in force, without noise.

        Log(max(P(w), p P_total) / (p P_total)).
        """
        return math.log(max(self.pruner.keep_now, self.pruner.keep_target) / self.pruner.keep_target)

    def _masked_accuracy(self) -> float | None:
        """Of the model with what the masks drop silenced, in %.

        None where nothing is dropped or it is gone already.
        """
        if self.pruner.shrunk or bool(self._masks().all()):
            return None
        plan = trainonce.Plan.from_masks(
            self.pruner.partition, {name: _with_one(mask) for name, mask in self.pruner.masks.items()}
        )
        for done in self.pruner.cuts:
            plan = plan_after(done, plan)
        silent = trainonce.silence(copy.deepcopy(self.model), plan)
        return self.task.tested(silent)["accuracy"]


def _with_one(mask: torch.Tensor) -> torch.Tensor:
    """A layer of which the masks drop all keeps one channel, as it does in the decision."""
    return mask if bool(mask.any()) else torch.ones_like(mask).cumsum(0).eq(1).to(mask.dtype)


def _num_dead(weight: torch.Tensor) -> int:
    """Filters that are all zero: kept, and of no use."""
    return int((weight.detach().flatten(1) == 0).all(dim=1).sum())
