"""Small file systems for tests of full disks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(disk: Path, megabytes: int = 8) -> Iterator[Path]:
    """A file system of its own; the test is skipped where none can be mounted."""
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(words, check=False).returncode:
        pytest.skip("a file system can't be mounted here")
    try:
        yield disk
    finally:
        # Lazy: tensors that were read from a checkpoint keep its file open as long as they live.
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            return ballast
