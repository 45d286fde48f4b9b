"""The training loop with trainonce in it.

Takes a model and a budget, gives the seconds of projection and controller, too.
"""

from __future__ import annotations

import time

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainonce
from benchmarks.harness.pruning import attach
from benchmarks.harness.recipe import Recipe
from benchmarks.timing.loops import Batch, Lap, PlainLoop


def said_phase(pruner: trainonce.Pruner) -> str:
    """The phase, and whether the model is smaller already: its steps are then others'."""
    phase = pruner.phase
    return (
        f"{phase.value}, after the first cut"
        if phase is not trainonce.Phase.SMALL and pruner.cuts
        else str(phase.value)
    )


class PrunedLoop(PlainLoop):
    """The same loop with trainonce's three lines."""

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        total_steps: int,
        *,
        example: Tensor,
        keep_flops: float,
        shrink: bool,
        is_taught: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(model, recipe, total_steps)
        self._projection_began = self._projection_seconds = 0.0
        # Hooks run in the order they were registered in: these two stand around the pruner's.
        self.optimizer.register_step_post_hook(lambda *_: self._begin_projection())
        start = time.perf_counter()
        self.pruner = attach(
            model,
            self.optimizer,
            example=example,
            keep_flops=keep_flops,
            total_steps=total_steps,
            shrink=shrink,
            seed=seed,
            teacher=is_taught,
        )
        self.setup_seconds = time.perf_counter() - start
        self.optimizer.register_step_post_hook(lambda *_: self._end_projection())

    def loss(self, batch: Batch) -> Tensor:
        """The plain loss, or with a teacher's part."""
        outputs = self.model(batch[0])
        return self.pruner.taught(cross_entropy(outputs, batch[1]), outputs, batch[0])

    def step(self, batch: Batch, held: Batch) -> Lap:
        """One step on `batch`, and the pruner's."""
        phase, calls = said_phase(self.pruner), []

        def loss_on_held() -> Tensor:
            calls.append(1)
            return self.loss(held)

        plain = super().step(batch, held)
        cpu, start = time.process_time(), time.perf_counter()
        self.pruner.step(loss_on_held)
        seconds = time.perf_counter() - start
        return Lap(
            plain.wall + seconds,
            plain.cpu + time.process_time() - cpu,
            plain.forward_backward,
            plain.optimizer - self._projection_seconds,
            self._projection_seconds,
            seconds,
            phase,
            bool(calls),
        )

    def finish(self) -> nn.Module:
        """The small model."""
        start = time.perf_counter()
        model = self.pruner.finish()
        self.finish_seconds = time.perf_counter() - start
        return model

    def _begin_projection(self) -> None:
        self._projection_began = time.perf_counter()

    def _end_projection(self) -> None:
        self._projection_seconds = time.perf_counter() - self._projection_began
