"""Where a run computes: device, number format, processes and memory layout, handed around as one."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a run computes, and in which format."""

    device: torch.device
    precision: Precision
    processes: Processes
    layout: torch.memory_format
