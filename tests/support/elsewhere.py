"""A process in which trainonce can't be imported, as on a machine where it is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

START = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "trainonce":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
try:
    import trainonce
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("trainonce is here")
"""

END = """
assert not any(name.partition(".")[0] == "trainonce" for name in sys.modules)
"""


def run_without_trainonce(
    script: str, *words: str, folder: Path | None = None, python_path: str = "", timeout: float = 600
) -> str:
    """What a script prints where trainonce is not; it must end without an error, and without trainonce."""
    done = subprocess.run(
        [sys.executable, "-c", START + script + END, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
