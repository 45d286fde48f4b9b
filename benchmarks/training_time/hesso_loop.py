"""HESSO as a loop that times itself; runs in only_train_once's environment."""

from __future__ import annotations

import time

from torch import Tensor, nn

from benchmarks.accuracy.hesso import HessoContender
from benchmarks.hesso import Hesso
from benchmarks.loops import PlainLoop
from benchmarks.recipe import Recipe


class HessoLoop(PlainLoop):
    """Its optimizer instead of the recipe's; the model stays whole until the end.

    It takes a share of groups: that which leaves about the right FLOPs in ResNets is taken, once, without a search.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, total_steps: int, *, example: Tensor, keep_flops: float) -> None:
        super().__init__(model, recipe, total_steps)
        start = time.perf_counter()
        sparsity = 1 - keep_flops ** (1 / HessoContender.exponent)
        self._hesso = Hesso(model, example[:1], recipe, total_steps, group_sparsity=sparsity)
        self.optimizer = self._hesso.optimizer
        self.setup_seconds = time.perf_counter() - start

    def finish(self) -> nn.Module:
        """The small model."""
        start = time.perf_counter()
        model = self._hesso.finish()
        self.finish_seconds = time.perf_counter() - start
        return model
