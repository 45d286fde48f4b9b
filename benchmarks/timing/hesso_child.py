"""HESSO and a dense loop in turns, in only_train_once's environment.

Takes that environment's python, gives what a child found there, or why it failed. The child,

    python -m benchmarks.timing.hesso_child ARCHITECTURE STEPS BATCH LATENCY_SECONDS

prints a line per step and at last what it found. It imports nothing of trainonce, which wants a newer torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.children import child_environment, end_with_parent
from benchmarks.sheets.sheet import ROOT, version_of
from benchmarks.timing.loops import latencies_ms
from benchmarks.timing.trainings import train_in_turns


def measure_hesso(
    python: Path,
    *,
    architecture: str,
    num_steps: int,
    batch_size: int,
    latency_seconds: float = 0.0,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """`dense` and `hesso` side by side, and the versions; `failure` if it failed."""
    words = [architecture, *(str(number) for number in (num_steps, batch_size, latency_seconds))]
    command = [str(python), "-m", "benchmarks.timing.hesso_child", *words]
    environment, last = child_environment(is_peer=True), ""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for last in child.stdout:
            if last.strip() == "step":
                advance()
        errors = child.stderr.read()
    if child.returncode:
        return {"failure": (errors.strip().splitlines() or ["no word"])[-1]}
    return json.loads(last)


def main() -> None:
    """Both loops, step by step, the cut, and how fast both models are."""
    end_with_parent()
    architecture, num_steps, batch_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    latency_seconds = float(sys.argv[4])
    found = train_in_turns(
        ("dense", "hesso"),
        architecture=architecture,
        num_steps=num_steps,
        batch_size=batch_size,
        # Its views refuse channels last; so the dense loop beside it does without, too.
        memory_format=torch.contiguous_format,
        advance=lambda: print("step", flush=True),
    )
    models = {name: training.model for name, training in found.items()}
    latencies = [
        latencies_ms(models, torch.randn(size, 3, 32, 32), seconds=latency_seconds)
        for size in (1, batch_size)
        if latency_seconds
    ]
    facts = {
        name: {**training.facts(), "latencies": [of_size[name] for of_size in latencies]}
        for name, training in found.items()
    }
    versions = f"torch {torch.__version__}, only_train_once {version_of('only_train_once')}"
    print(json.dumps({**facts, "versions": versions}))


if __name__ == "__main__":
    main()
