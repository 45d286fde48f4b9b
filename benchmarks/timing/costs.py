"""What trainings cost, here and in HESSO's environment.

Takes a model's name and sizes, gives the figures of each contender.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing.hesso_child import measure_hesso
from benchmarks.timing.loops import latencies_ms, noise_batches
from benchmarks.timing.memory import Peaks, median_peaks
from benchmarks.timing.trainings import Training, train_in_turns

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

    @classmethod
    def of(cls, facts: Mapping[str, float], latencies: Sequence[float], memory: Peaks) -> Cost:
        return cls(
            seconds=facts["seconds"],
            once=facts["once"],
            cpu=facts["cpu"],
            memory=memory[0],
            memory_above=memory[1],
            latencies=latencies,
            share_of_flops=facts["share"],
        )


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
    facts = {name: training.facts() for name, training in trainings.items()}
    of_size = {name: [latency[name] for latency in latencies] for name in HERE}
    return {name: Cost.of(facts[name], of_size[name], memories[name]) for name in HERE}, trainings


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
    return {name: Cost.of(found[name], found[name]["latencies"], memories[name]) for name in THERE}


def _memories(names: Sequence[str], sizes: Sizes, **where: Any) -> dict[str, Peaks]:
    return median_peaks(
        names,
        architecture=sizes.architecture,
        batch_size=sizes.batch_size,
        num_steps=sizes.memory_steps,
        num_repeats=sizes.memory_repeats,
        **where,
    )
