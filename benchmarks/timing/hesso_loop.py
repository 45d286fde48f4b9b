"""HESSO as a loop that times itself; runs in only_train_once's environment."""

from __future__ import annotations

import contextlib
import importlib
import time

from torch import Tensor, nn

from benchmarks.harness.recipe import Recipe
from benchmarks.peers.group_search import first_share
from benchmarks.peers.hesso import Hesso
from benchmarks.timing.loops import PlainLoop

with contextlib.suppress(ImportError):
    # In its environment: what it imports is there before the training begins, as with the others, and is not
    # counted as the training's.
    importlib.import_module("only_train_once")


class HessoLoop(PlainLoop):
    """Its optimizer instead of the recipe's; the model stays whole until the end.

    It takes a share of groups: that which leaves about the right FLOPs in ResNets is taken, once, without a
    search.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, total_steps: int, *, example: Tensor, keep_flops: float
    ) -> None:
        super().__init__(model, recipe, total_steps)
        start = time.perf_counter()
        self._hesso = Hesso(
            model,
            example[:1],
            recipe,
            total_steps,
            choose_num_kept=lambda num_groups: round(num_groups * first_share(keep_flops)),
        )
        self.optimizer = self._hesso.optimizer
        self.setup_seconds = time.perf_counter() - start

    def finish(self) -> nn.Module:
        """The small model."""
        start = time.perf_counter()
        model = self._hesso.finish()
        self.finish_seconds = time.perf_counter() - start
        return model
