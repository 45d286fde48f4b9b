"""Two loops in turns.

Takes what `fit` asks its data for as the signal, and trains a plain DDP model between the steps of `fit`.

`fit` itself is not touched: a step of ours is the time from handing out a batch to being asked for the next
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness.recipe import take_step
from benchmarks.timing.loops import Batch
from benchmarks.timing.pruned_loop import said_phase
from trainonce.pruning.pruner import Pruner
from trainonce.training import Settings
from trainonce.training.optimizers import OPTIMIZERS


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of each loop, in seconds."""

    plain: float
    ours: float
    plain_cpu: float
    ours_cpu: float
    phase: str
    is_update: bool
    """Whether the controller learned in this step."""

    is_cut: bool = False
    """Whether the model was cut in this step."""


@dataclass(slots=True)
class PlainDDP:
    """What a user writes without trainonce."""

    core: nn.Module
    settings: Settings
    model: nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None

    def step(self, batch: Batch) -> None:
        # The process group is there only when `fit` has begun.
        if self.model is None or self.optimizer is None:
            self.model = DistributedDataParallel(self.core.train())
            self.optimizer = OPTIMIZERS[self.settings.opt](self.core.parameters(), self.settings)
        take_step(self.model, self.optimizer, batch)


@dataclass(slots=True)
class TurnSamples:
    """Training data of `fit`: `num_samples` numbers over a few stored images.

    A plain step runs beside each step of `fit`.
    """

    images: Tensor
    labels: Tensor
    num_samples: int
    plain: PlainDDP
    find_pruner: Callable[[], Pruner]
    turns: list[Turn] = field(default_factory=list)
    num_updates: int = 0

    def __len__(self) -> int:
        return self.num_samples

    def batches(self, draws: Iterable[tuple[Tensor, int]]) -> Iterator[Batch]:
        if isinstance(draws, list):
            # The controller asks for one batch at a time, in a list; training asks for an epoch, in a
            # generator.
            self.num_updates += 1
            yield from (self._batch(samples) for samples, _ in draws)
            return
        for samples, _ in draws:
            batch = self._batch(samples)
            goes_first = len(self.turns) % 2 == 0
            plain = self._time(lambda: self.plain.step(batch)) if goes_first else (0.0, 0.0)  # noqa: B023
            phase, updates, cuts = said_phase(self.find_pruner()), self.num_updates, self._num_cuts()
            dist.barrier()
            cpu, start = time.process_time(), time.perf_counter()
            yield batch
            ours = time.perf_counter() - start, time.process_time() - cpu
            if not goes_first:
                plain = self._time(lambda: self.plain.step(batch))  # noqa: B023 - called at once
            is_update, is_cut = self.num_updates > updates, self._num_cuts() > cuts
            self.turns.append(Turn(plain[0], ours[0], plain[1], ours[1], phase, is_update, is_cut))

    def _num_cuts(self) -> int:
        return len(self.find_pruner().cuts)

    def _batch(self, samples: Tensor) -> Batch:
        stored = samples % len(self.images)
        return self.images[stored], self.labels[stored]

    def _time(self, action: Callable[[], None]) -> tuple[float, float]:
        dist.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        action()
        return time.perf_counter() - start, time.process_time() - cpu
