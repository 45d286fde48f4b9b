"""Child processes: the environment that they run in, and an end when their parent ends."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import torch

from benchmarks.sheets.sheet import ROOT

_POLL_SECONDS = 1.0


def child_environment(
    *, threads: int | None = None, is_peer: bool = False, root: Path = ROOT
) -> dict[str, str]:
    """As here, with the code of a checkout, as many threads, and no warnings of old packages.

    A peer's environment has its own packages, so nothing else is on the path there.
    """
    others = [] if is_peer else [path for path in [os.environ.get("PYTHONPATH")] if path]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), *others]),
        "PYTHONWARNINGS": "ignore",
        # Bits depend on the number of threads.
        "OMP_NUM_THREADS": str(threads or torch.get_num_threads()),
    }


def end_with_parent() -> None:
    """End this process when its parent is gone: an orphan would go on writing to the cache."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
