"""Training loops that time themselves: takes a model and batches, gives the seconds of each part of each step."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainonce
from benchmarks.recipe import Recipe, set_learning_rate

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Lap:
    """One training step, in seconds."""

    wall: float
    cpu: float
    """Of all threads: other work on the machine disturbs it less than the wall clock."""

    forward_backward: float
    optimizer: float
    """The optimizer's step without the projection that rides on it."""

    projection: float = 0.0
    controller: float = 0.0
    phase: str = "plain"
    is_update: bool = False
    """Whether the controller learned in this step."""


class PlainLoop:
    """What a user writes without trainonce."""

    def __init__(self, model: nn.Module, recipe: Recipe, total_steps: int) -> None:
        self.model = model
        self.recipe = recipe
        self.optimizer = recipe.optimizer(model)
        self.total_steps = total_steps
        self.num_steps = 0
        self.setup_seconds = self.finish_seconds = 0.0

    def step(self, batch: Batch, held: Batch) -> Lap:
        """One step on `batch`; `held` is for a controller, if there is one."""
        set_learning_rate(self.optimizer, self.recipe.learning_rate(self.num_steps, self.total_steps))
        cpu, start = time.process_time(), time.perf_counter()
        cross_entropy(self.model(batch[0]), batch[1]).backward()
        middle = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        end = time.perf_counter()
        self.num_steps += 1
        return Lap(end - start, time.process_time() - cpu, middle - start, end - middle)

    def finish(self) -> nn.Module:
        """The model that the loop was to make."""
        return self.model


class PrunedLoop(PlainLoop):
    """The same loop with trainonce's three lines."""

    def __init__(
        self, model: nn.Module, recipe: Recipe, total_steps: int, *, example: Tensor, keep_flops: float, shrink: bool, seed: int = 0
    ) -> None:
        super().__init__(model, recipe, total_steps)
        self._projection_began = self._projection_seconds = 0.0
        # Hooks run in the order they were registered in: these two stand around the pruner's.
        self.optimizer.register_step_post_hook(lambda *_: self._begin_projection())
        start = time.perf_counter()
        with warnings.catch_warnings():
            # The length of the run is chosen for its time, not for what it learns.
            warnings.simplefilter("ignore", trainonce.ShortRun)
            self.pruner = trainonce.attach(
                model, self.optimizer, example=example, keep_flops=keep_flops, total_steps=total_steps, shrink=shrink, seed=seed
            )
        self.setup_seconds = time.perf_counter() - start
        self.optimizer.register_step_post_hook(lambda *_: self._end_projection())

    def step(self, batch: Batch, held: Batch) -> Lap:
        """One step on `batch`, and the pruner's."""
        phase, calls = str(self.pruner.phase.value), []

        def loss_on_held() -> Tensor:
            calls.append(1)
            return cross_entropy(self.model(held[0]), held[1])

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


def noise_batches(num_batches: int, batch_size: int, *, image_size: int = 32, seed: int = 0) -> list[Batch]:
    """Batches of noise, channels last: what they show does not change what they cost."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(num_batches):
        images = torch.randn(batch_size, 3, image_size, image_size, generator=generator)
        labels = torch.randint(0, 10, (batch_size,), generator=generator)
        batches.append((images.contiguous(memory_format=torch.channels_last), labels))
    return batches
