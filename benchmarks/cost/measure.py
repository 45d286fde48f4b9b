"""What trainings cost, here and in HESSO's environment.

Takes a model's name and sizes, gives the figures of each contender.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.latency import latencies_ms
from benchmarks.loops import noise_batches
from benchmarks.memory import peak_megabytes
from benchmarks.training_time.hesso_peer import measure_hesso
from benchmarks.trainings import Training, train_in_turns

HERE = ("dense", "ours", "torch_pruning")
THERE = ("dense", "hesso")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How much is run."""

    architecture: str
    num_steps: int
    batch_size: int
    memory_steps: int
    memory_repeats: int
    latency_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Of one contender."""

    seconds: float
    """The whole training, with what is done once."""

    once: float
    cpu: float
    """Seconds of all threads, steps only."""

    memory: float
    """Largest resident set in MB."""

    memory_above: float
    """The part of it that was not there before the training."""

    latencies: Sequence[float]
    """Milliseconds for one image and for a batch."""

    share_of_flops: float


def measure_here(sizes: Sizes, *, advance: Callable[[], None]) -> tuple[dict[str, Cost], dict[str, Training]]:
    """Dense, ours and Torch-Pruning; and their trainings, for a closer look."""
    trainings = train_in_turns(
        HERE,
        architecture=sizes.architecture,
        num_steps=sizes.num_steps,
        batch_size=sizes.batch_size,
        advance=advance,
    )
    models = {name: training.model for name, training in trainings.items()}
    images = noise_batches(1, sizes.batch_size)[0][0]
    latencies = [latencies_ms(models, part, seconds=sizes.latency_seconds) for part in (images[:1], images)]
    memories = _memories(HERE, sizes)
    costs = {
        name: Cost(
            seconds=training.seconds,
            once=training.once,
            cpu=training.cpu_seconds,
            memory=memories[name][0],
            memory_above=memories[name][1],
            latencies=[of_size[name] for of_size in latencies],
            share_of_flops=training.share_of_flops,
        )
        for name, training in trainings.items()
    }
    return costs, trainings


def measure_there(python: Path, sizes: Sizes, *, advance: Callable[[], None]) -> dict[str, Cost] | str:
    """Dense and HESSO in HESSO's environment; or, in words, why not."""
    found = measure_hesso(
        python,
        architecture=sizes.architecture,
        num_steps=sizes.num_steps,
        batch_size=sizes.batch_size,
        latency_seconds=sizes.latency_seconds,
        advance=advance,
    )
    if "failure" in found:
        return found["failure"]
    memories = _memories(THERE, sizes, python=python, layout="contiguous")
    return {
        name: Cost(
            seconds=found[name]["seconds"],
            once=found[name]["once"],
            cpu=found[name]["cpu"],
            memory=memories[name][0],
            memory_above=memories[name][1],
            latencies=found[name]["latencies"],
            share_of_flops=found[name]["share"],
        )
        for name in THERE
    }


def _memories(
    names: Sequence[str], sizes: Sizes, *, python: Path | None = None, layout: str = "channels_last"
) -> dict[str, tuple[float, float]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(sizes.memory_repeats):
        for name in names:
            found[name].append(
                peak_megabytes(
                    name,
                    beside=names,
                    architecture=sizes.architecture,
                    batch_size=sizes.batch_size,
                    num_steps=sizes.memory_steps,
                    python=python,
                    layout=layout,
                )
            )
    return {
        name: (median(whole for whole, _ in peaks), median(above for _, above in peaks))
        for name, peaks in found.items()
    }
