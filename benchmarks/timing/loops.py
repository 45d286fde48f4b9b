"""Training loops that time themselves, and the latency of models; needs torch alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.harness.recipe import Recipe, set_learning_rate

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

    def loss(self, batch: Batch) -> Tensor:
        """What is minimized."""
        return cross_entropy(self.model(batch[0]), batch[1])

    def step(self, batch: Batch, held: Batch) -> Lap:
        """One step on `batch`; `held` is for a controller, if there is one."""
        set_learning_rate(self.optimizer, self.recipe.learning_rate(self.num_steps, self.total_steps))
        cpu, start = time.process_time(), time.perf_counter()
        self.loss(batch).backward()
        middle = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        end = time.perf_counter()
        self.num_steps += 1
        return Lap(end - start, time.process_time() - cpu, middle - start, end - middle)

    def finish(self) -> nn.Module:
        """The model that the loop was to make."""
        return self.model


def take_turns(
    loops: Mapping[str, PlainLoop], batches: Sequence[Batch], held: Batch, *, advance: Callable[[], None]
) -> dict[str, list[Lap]]:
    """All steps of all loops, one of each in an order that rotates.

    Whatever else the machine does hits all alike.
    """
    # The first pass through a shape compiles kernels: take it before the clock starts.
    for loop in loops.values():
        cross_entropy(loop.model(held[0]), held[1]).backward()
        loop.model.zero_grad()
    laps: dict[str, list[Lap]] = {name: [] for name in loops}
    names = list(loops)
    for step in range(loops[names[0]].total_steps):
        first = step % len(names)
        for name in names[first:] + names[:first]:
            laps[name].append(loops[name].step(batches[step % len(batches)], held))
        advance()
    return laps


def noise_batches(
    num_batches: int,
    batch_size: int,
    *,
    image_size: int = 32,
    memory_format: torch.memory_format = torch.channels_last,
    seed: int = 0,
) -> list[Batch]:
    """Batches of noise: what they show does not change what they cost."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(num_batches):
        images = torch.randn(batch_size, 3, image_size, image_size, generator=generator)
        labels = torch.randint(0, 10, (batch_size,), generator=generator)
        batches.append((images.contiguous(memory_format=memory_format), labels))
    return batches


_FEWEST_CALLS = 5


@torch.no_grad()
def latencies_ms(models: Mapping[str, nn.Module], images: Tensor, *, seconds: float) -> dict[str, float]:
    """In turns, so that a busy machine slows all alike; takes about `seconds`.

    The models are left in eval mode.
    """
    found: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        model.eval()
        for _ in range(2):
            model(images)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, found.values())) < _FEWEST_CALLS:
        for name, model in models.items():
            start = time.perf_counter()
            model(images)
            found[name].append(1000 * (time.perf_counter() - start))
    return {name: median(times) for name, times in found.items()}
