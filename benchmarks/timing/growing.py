"""CPU seconds of one inspection and of one projection: takes a model, gives medians.

Without weights there is no projection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

import trainonce
from benchmarks.timing.families import Subject
from trainonce.pruning.pulling.projection import Projection, Proximal
from trainonce.pruning.schedule import Strength
from trainonce.pruning.units import Units


@dataclass(frozen=True, slots=True)
class Growth:
    """What was found on one model, in CPU seconds of all threads."""

    subject: Subject
    num_parameters: int
    num_groups: int
    num_units: int
    inspect: float
    projection: float | None
    """One pull of half of all units, as in the search; None on `meta`."""

    optimizer: float | None
    """One step of SGD with momentum on all parameters, to compare with."""


def measure_growth(subject: Subject, *, num_repeats: int, num_pulls: int) -> Growth:
    """Inspect a few times, pull many times."""
    model, example = subject.build()
    partition = trainonce.inspect(model, example)
    inspect = _median_seconds(lambda: trainonce.inspect(model, example), num_repeats)
    units = Units.of(partition, [name for name, _ in model.named_parameters()])
    projection = optimizer = None
    if not any(parameter.is_meta for parameter in model.parameters()):
        projection, optimizer = _measure_pull(model, units, num_pulls)
    return Growth(
        subject, partition.num_parameters, len(partition.groups), len(units), inspect, projection, optimizer
    )


def _measure_pull(model: nn.Module, units: Units, num_pulls: int) -> tuple[float, float]:
    tensors = dict(model.named_parameters())
    for parameter in tensors.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(tensors.values(), lr=1e-3, momentum=0.9)
    optimizer.step()
    projection = Projection(units, tensors, optimizer)
    projection.select(torch.rand(len(units), generator=torch.Generator().manual_seed(0)) < 0.5)
    strength = Strength()
    floor = projection.mean_norms() * strength.floor
    pull = Proximal()
    return (
        _median_seconds(lambda: projection.apply(pull, strength.searching, floor=floor), num_pulls),
        _median_seconds(optimizer.step, num_pulls),
    )


def _median_seconds(work: Callable[[], object], num_times: int) -> float:
    seconds = []
    for _ in range(num_times):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return median(seconds)
