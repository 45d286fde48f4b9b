"""Steps on real and on constant batches, in turns.

Takes a model's depth and a size of images, gives CPU milliseconds of both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from trainonce.data.augmentation import ShiftAndFlip
from trainonce.data.pictures import Normalization, Pictures
from trainonce.training.loop.evaluation import CrossEntropy
from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes
from trainonce.training.loop.surroundings import Surroundings
from trainonce.training.loop.trainer import Trainer
from trainonce.training.settings import Settings
from trainonce.zoo.residual import thin_resnet

NUM_IMAGES = 5000
STEPS_PER_TURN = 4


@dataclass(frozen=True, slots=True)
class Subject:
    """A ResNet for small images, and what it is trained on."""

    depth: int
    image_size: int
    batch_size: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Medians over the turns."""

    constant_ms: float
    real_ms: float

    @property
    def speed(self) -> float:
        """With real batches, in relation to the constant one."""
        return self.constant_ms / self.real_ms


def measure_steps(subject: Subject, *, num_turns: int, seed: int) -> Steps:
    """Both kinds of steps by the trainer of `fit`, four at a time.

    CPU seconds, which other work on the machine disturbs least.
    """
    torch.manual_seed(seed)
    trainer = _make_trainer(subject, seed)
    batches = _endless(trainer)
    constant = next(batches)
    times: dict[str, list[float]] = {"constant": [], "real": []}
    for name in ("constant", "real") * (num_turns + 1):
        start = time.process_time()
        for _ in range(STEPS_PER_TURN):
            trainer.run_step(constant if name == "constant" else next(batches))
        times[name].append(1000 * (time.process_time() - start) / STEPS_PER_TURN)
    # The first turns pay for what is made once.
    return Steps(*(statistics.median(times[name][1:]) for name in ("constant", "real")))


def _endless(trainer: Trainer) -> Iterator[Any]:
    while True:
        yield from trainer.epoch_batches()


def _make_trainer(subject: Subject, seed: int) -> Trainer:
    size = subject.image_size
    images = torch.randint(0, 256, (NUM_IMAGES, 3, size, size), dtype=torch.uint8)
    augmentation = ShiftAndFlip(max(1, size // 8), True)
    model = thin_resnet(subject.depth, 10).train()
    return Trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        train=Pictures(images, torch.arange(NUM_IMAGES) % 10, Normalization.of(images), augmentation),
        example=None,
        settings=Settings(epochs=1000, batch_size=subject.batch_size, seed=seed),
        surroundings=Surroundings(
            torch.device("cpu"), Precision("cpu", None), Processes(), torch.contiguous_format
        ),
        loss=CrossEntropy(),
        mixing=None,
    )
