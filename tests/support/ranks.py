"""A script in two processes, as `torchrun` starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_two(script: Path, *words: str) -> str:
    """What both processes wrote to their standard output; AssertionError with their errors if one failed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    folders = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, *launch, str(script), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
