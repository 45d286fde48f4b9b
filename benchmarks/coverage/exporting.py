"""How long `torch.export` takes on one model: takes a source, gives the seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.coverage.subject import load_subject
from trainonce.channels import Example


def warm_up() -> None:
    """Pay for imports and caches that the first export of a process pays for all."""
    _export(nn.Linear(4, 4), torch.zeros(1, 4))


def measure_export(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The seconds of one capture of the whole model, as it is in eval mode."""
    subject = load_subject(source)
    started = time.perf_counter()
    _export(subject.model, subject.example)
    yield "export", {"seconds": time.perf_counter() - started}


def _export(model: nn.Module, example: Example) -> None:
    if isinstance(example, dict):
        torch.export.export(model, (), example, strict=False)
    else:
        torch.export.export(model, example if isinstance(example, tuple) else (example,), strict=False)
