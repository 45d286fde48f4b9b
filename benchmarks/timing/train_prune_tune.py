"""Torch-Pruning as a loop that times itself: train, prune, fine-tune."""

from __future__ import annotations

import copy
import time

from torch import Tensor, nn

from benchmarks.harness.flops import count_parameters
from benchmarks.harness.recipe import Recipe
from benchmarks.peers.torchpruning import magnitude_pruner, prune_to
from benchmarks.timing.loops import Batch, Lap, PlainLoop


class TrainPruneTune(PlainLoop):
    """Train for half of the steps, prune, fine-tune for the other half with a new optimizer."""

    def __init__(
        self, model: nn.Module, recipe: Recipe, total_steps: int, *, example: Tensor, keep_flops: float
    ) -> None:
        super().__init__(model, recipe, total_steps)
        self._example = example[:1]
        self._keep_flops = keep_flops

    def step(self, batch: Batch, held: Batch) -> Lap:
        """One step; the pruning before the first of the second half counts as setup."""
        if self.num_steps == self.total_steps // 2:
            self._prune()
        return super().step(batch, held)

    def _prune(self) -> None:
        # How far to go is found on a copy: that takes long, is this harness's counting, and must not be
        # charged to the peer.
        tried = copy.deepcopy(self.model)
        prune_to(tried, self._example, self._keep_flops)
        wanted = count_parameters(tried)
        start = time.perf_counter()
        pruner = magnitude_pruner(self.model, self._example)
        while count_parameters(self.model) > wanted:
            for group in pruner.step(interactive=True) or ():
                group.prune()
                if count_parameters(self.model) <= wanted:
                    break
        self.optimizer = self.recipe.optimizer(self.model)
        self.setup_seconds = time.perf_counter() - start
