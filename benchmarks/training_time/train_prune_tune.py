"""Torch-Pruning as a loop that times itself: train, prune, fine-tune."""

from __future__ import annotations

import time

from torch import Tensor, nn

from benchmarks.loops import Batch, Lap, PlainLoop
from benchmarks.recipe import Recipe
from benchmarks.torchpruning import prune_to


class TrainPruneTune(PlainLoop):
    """Torch-Pruning: train for half of the steps, prune, fine-tune for the other half with a new optimizer."""

    def __init__(self, model: nn.Module, recipe: Recipe, total_steps: int, *, example: Tensor, keep_flops: float) -> None:
        super().__init__(model, recipe, total_steps)
        self._example = example[:1]
        self._keep_flops = keep_flops

    def step(self, batch: Batch, held: Batch) -> Lap:
        """One step; the pruning before the first of the second half counts as setup."""
        if self.num_steps == self.total_steps // 2:
            start = time.perf_counter()
            prune_to(self.model, self._example, self._keep_flops)
            self.optimizer = self.recipe.optimizer(self.model)
            self.setup_seconds = time.perf_counter() - start
        return super().step(batch, held)
