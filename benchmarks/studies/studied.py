"""A variant in the harness: trains as its data says, and notes what the masks keep and how good the masked model is."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import torch

import trainonce
from benchmarks.accuracy.contender import Batch, Contender
from benchmarks.accuracy.ours import Ours
from benchmarks.images import load_images, predict
from benchmarks.studies.variants import VARIANTS, Variant
from trainonce.policies import Controller, Policy
from trainonce.projection import Pull
from trainonce.succession import plan_after


class StudiedDense(Contender):
    """Nothing is pruned; only the recipe is the variant's."""

    def prepare(self) -> None:
        """With another recipe."""
        self.recipe = VARIANTS[self.configuration.contender].recipe
        super().prepare()


class Studied(Ours):
    """Ours with the variant's objects.

    As in the paper, a model whose masks are not decided yet is also measured with them: what they drop is silenced in a copy.
    """

    @property
    def variant(self) -> Variant:
        return VARIANTS[self.configuration.contender]

    def policy(self) -> Policy | None:
        return None if self.variant.gamma is None else Controller(gamma=self.variant.gamma)

    def pull(self) -> Pull:
        return self.variant.pull

    def strength(self) -> trainonce.Strength:
        return self.variant.strength

    def schedule(self) -> trainonce.Schedule:
        return self.variant.schedule

    def prepare(self) -> None:
        """With another recipe, and empty notes."""
        self.recipe = self.variant.recipe
        self.shrinks = self.variant.shrinks
        super().prepare()
        self._notes: dict[str, Any] = {"penalties": [], "masked_accuracies": [], "seconds_of_notes": 0.0}
        self._was_dropped = torch.zeros_like(self._masks())

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """A step, and notes after an update of the controller and at the end of an epoch."""
        steps_per_epoch = self.total_steps // self.configuration.epochs
        draws = []

        def noted_draw() -> Batch:
            draws.append(number)
            return draw_held()

        loss = super().step(number, batch, noted_draw)
        start = time.perf_counter()
        ends_epoch = (number + 1) % steps_per_epoch == 0
        if draws or ends_epoch:
            self._notes["penalties"].append([(number + 1) / steps_per_epoch, self._penalty()])
            if not self.pruner.shrunk:
                self._was_dropped = torch.maximum(self._was_dropped, 1 - self._masks())
        if ends_epoch:
            self._notes["masked_accuracies"].append(self._masked_accuracy())
        self._notes["seconds_of_notes"] += time.perf_counter() - start
        return loss

    def facts(self) -> dict[str, Any]:
        """The notes, and how many of the units that the masks once dropped are in the small model."""
        num_came_back = int((self._was_dropped * self._masks()).sum())
        return {**super().facts(), **self._notes, "num_dropped_once": int(self._was_dropped.sum()), "num_came_back": num_came_back}

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
        """The paper's regulariser of the masks in force, without noise: log(max(P(w), p P_total) / (p P_total))."""
        return math.log(max(self.pruner.keep_flops_now, self.pruner.keep_flops_target) / self.pruner.keep_flops_target)

    def _masked_accuracy(self) -> float | None:
        """Of the model with what the masks drop silenced, in %; None where nothing is dropped or it is gone already."""
        if self.pruner.shrunk or bool(self._masks().all()):
            return None
        images = load_images(self.configuration.data or "digits")
        plan = trainonce.Plan.from_masks(self.pruner.partition, self.pruner.masks)
        for done in self.pruner.cuts:
            plan = plan_after(done, plan)
        silent = trainonce.silence(copy.deepcopy(self.model), plan)
        return 100 * float((predict(silent, images).argmax(1) == images.test_labels).float().mean())
