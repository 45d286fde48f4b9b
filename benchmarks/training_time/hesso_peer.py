"""HESSO's training from here.

Takes the python of its environment, gives what its child found, or why it failed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.sheet import ROOT


def peer_environment() -> dict[str, str]:
    """As here, but the sources are found and warnings of old packages are not shown."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }


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
    command = [str(python), "-m", "benchmarks.training_time.hesso_child", *words]
    last = ""
    with subprocess.Popen(
        command, cwd=ROOT, env=peer_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
