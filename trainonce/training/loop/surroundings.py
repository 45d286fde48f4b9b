"""Where a run computes: device, precision, processes and memory format, passed around as one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes, joined
from trainonce.training.settings import Settings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a run computes, and in which format."""

    device: torch.device
    precision: Precision
    processes: Processes
    layout: torch.memory_format


@contextmanager
def surrounded(settings: Settings, device: torch.device, precision: Precision) -> Iterator[Surroundings]:
    """The surroundings of a run; torch's own settings and random state are restored at the end."""
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    with _settings_of_torch(deterministic=settings.deterministic), joined(device) as processes:
        yield Surroundings(device, precision, processes, layout)


@contextmanager
def _settings_of_torch(*, deterministic: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    state, python_state = torch.random.get_rng_state(), random.getstate()
    if deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
        torch.random.set_rng_state(state)
        random.setstate(python_state)
