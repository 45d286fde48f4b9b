"""How long inspection takes beside what it is held against.

Takes a source, gives the seconds of all three, measured in turns.

One process runs `trainonce.inspect`, `torch.export` and the graph of Torch-Pruning one right after the other,
on the same model, so that a busy machine slows down all three alike.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_pruning
from torch import nn

import trainonce
from benchmarks.coverage.calls import as_inputs, reason_of, tiny_model
from benchmarks.coverage.subject import load_subject
from trainonce.structure.channels import Example


def warm_up() -> None:
    """Pay for imports and caches that the first use of a process pays for all."""
    for measure in _TURNS.values():
        measure(tiny_model(), torch.zeros(1, 4))


def measure_turns(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """After each of the three its seconds, or why it failed."""
    subject = load_subject(source)
    for name, measure in _TURNS.items():
        started = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                measure(subject.model, subject.example)
        except Exception as error:
            yield name, {f"{name}_problem": reason_of(error)}
        else:
            yield name, {f"{name}_seconds": time.perf_counter() - started}


def _inspect(model: nn.Module, example: Example) -> None:
    trainonce.inspect(model, example)


def _export(model: nn.Module, example: Example) -> None:
    if isinstance(example, dict):
        torch.export.export(model, (), example, strict=False)
    else:
        torch.export.export(model, as_inputs(example), strict=False)


def _build_graph(model: nn.Module, example: Example) -> None:
    torch_pruning.DependencyGraph().build_dependency(model, as_inputs(example))


_TURNS: dict[str, Callable[[nn.Module, Example], None]] = {
    "inspect": _inspect,
    "export": _export,
    "graph": _build_graph,
}
