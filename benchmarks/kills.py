"""`python -m benchmarks.kills [COUNT]`: a run killed at random moments, also during saves, against the same run left alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
WORKER = ROOT / "tests" / "worker.py"
SETTINGS = {"epochs": 30, "save_minutes": 0.0}
LONGEST_LIFE = 2.0
"""Seconds that a process lives at most after it has begun to save: every step saves, so that about half of the kills hit a save."""


def main() -> int:
    num_kills, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 20, random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        start(whole).wait()
        done, drafts = 0, 0
        while done < num_kills and not (killed / "report.json").exists():
            process = start(killed)
            newest = names(killed)
            while process.poll() is None and names(killed) == newest:
                time.sleep(0.002)
            time.sleep(LONGEST_LIFE * rng.random() / num_kills)
            process.kill()
            process.wait()
            done += 1
            drafts += any(name.startswith(".") for name in names(killed))
        start(killed).wait()
        one, other = (load_file(out / "small" / "model.safetensors") for out in (whole, killed))
        same = one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
        left = [name for name in names(killed) if name.startswith(".")]
    print(
        f"{done} kills, {drafts} of them in the middle of a save: small models equal to the bit: {same}; left behind: {left or 'nothing'}"
    )
    return 0 if same and not left else 1


def start(out: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(WORKER), str(out), json.dumps(SETTINGS)], env=environment)


def names(out: Path) -> list[str]:
    folder = out / "checkpoints"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


if __name__ == "__main__":
    sys.exit(main())
