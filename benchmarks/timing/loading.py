"""`python -m benchmarks loading`: training steps on real and on constant batches.

Writes `benchmarks/results/loading.md`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.sheets.options import add_number, add_seed
from benchmarks.sheets.sheet import bar_table, exit_code, heading, table, write_sheet
from benchmarks.sheets.waiting import waiting
from trainonce.data.augmentation import ShiftAndFlip
from trainonce.data.pictures import Normalization, Pictures
from trainonce.training.loop.evaluation import CrossEntropy
from trainonce.training.loop.objective import Objective
from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes
from trainonce.training.loop.surroundings import Surroundings
from trainonce.training.loop.trainer import Trainer
from trainonce.training.settings import Settings
from trainonce.zoo.residual import thin_resnet

NUM_IMAGES = 5000
STEPS_PER_TURN = 4
BAR = 0.95


@dataclass(frozen=True, slots=True)
class Subject:
    """A ResNet for small images, and what it is trained on."""

    depth: int
    image_size: int
    batch_size: int


SUBJECTS = (Subject(20, 32, 128), Subject(56, 32, 128), Subject(20, 8, 64))

INTRODUCTION = """\
Steps of `fit` (forward, backward, optimizer, records) on {images} random images kept in memory, drawn in
their order, shifted, flipped and normalised anew for every batch, against the same steps on one batch that
is made once. The two take turns, {steps} steps each, {turns} turns; medians of CPU milliseconds per step of
one process, which other work on the machine disturbs least.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--turns", 12, "of each kind of batch")
    parser.add_argument("--depth", type=int, metavar="N", help="only ResNets of this depth")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if the bar is missed."""
    subjects = [subject for subject in SUBJECTS if arguments.depth in (None, subject.depth)]
    found: list[tuple[Subject, Steps]] = []
    with waiting(len(subjects), "loading") as bar:
        for subject in subjects:
            bar.say(f"ResNet-{subject.depth}, {subject.image_size} pixels")
            found.append((subject, measure_steps(subject, num_turns=arguments.turns, seed=arguments.seed)))
            bar.advance()
    slowest = min((steps.speed for _, steps in found), default=0.0)
    what = "speed with real data, of that with a constant batch, least of all"
    bars = [(what, f">= {BAR}", f"{slowest:.3f}", slowest >= BAR)]
    rows = [
        (
            *(f"ResNet-{subject.depth}", subject.image_size, subject.batch_size),
            *(f"{steps.constant_ms:.1f}", f"{steps.real_ms:.1f}", f"{steps.speed:.3f}"),
        )
        for subject, steps in found
    ]
    write_sheet(
        arguments.out,
        "What reading and augmenting images costs",
        heading("trainonce", seeds=f"seed {arguments.seed}"),
        INTRODUCTION.format(images=NUM_IMAGES, steps=STEPS_PER_TURN, turns=arguments.turns),
        bar_table(bars),
        "## Steps",
        table(("model", "pixels", "batch", "constant, ms", "real, ms", "speed with real data"), rows),
    )
    return exit_code(bars)


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
        objective=Objective(
            CrossEntropy(),
            Surroundings(torch.device("cpu"), Precision("cpu", None), Processes(), torch.contiguous_format),
        ),
    )
