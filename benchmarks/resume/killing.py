"""Start a training, kill it at a step, start it again.

Takes a folder and a step, gives where it died and where it went on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.sheet import ROOT


@dataclass(frozen=True, slots=True)
class Setting:
    """What every run has in common."""

    total_steps: int
    checkpoint_every: int
    batch_size: int
    seed: int

    def start(self, folder: Path) -> subprocess.Popen[str]:
        """The one command that starts a training and that goes on with it."""
        numbers = [
            str(number) for number in (self.total_steps, self.checkpoint_every, self.batch_size, self.seed)
        ]
        command = [sys.executable, "-m", "benchmarks.resume.child", str(folder), *numbers]
        # Bits depend on the number of threads: the same for all.
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
            "PYTHONWARNINGS": "ignore",
        }
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


@dataclass(frozen=True, slots=True)
class Killed:
    """One killed and resumed run."""

    asked_step: int
    died_after: str
    went_on_from: str
    final: Path


def run_to_end(setting: Setting, folder: Path) -> tuple[list[str], float]:
    """All lines of a run that nobody disturbs, and the seconds after the first of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with setting.start(folder) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline().strip()]
        start = time.perf_counter()
        lines += [line.strip() for line in child.stdout]
    if child.returncode:
        raise RuntimeError(f"the training ended with {child.returncode}; its words are above")
    return lines, time.perf_counter() - start


def kill_and_resume(
    setting: Setting, folder: Path, at_step: int, *, chance: random.Random, step_seconds: float
) -> Killed:
    """SIGKILL at a random moment of the step that follows `at_step`, then the same command again to the end."""
    folder.mkdir(parents=True)
    last = ""
    with setting.start(folder) as child:
        assert child.stdout is not None
        for line in child.stdout:
            last = line.strip()
            if int(last.split()[1]) >= at_step:
                time.sleep(chance.uniform(0, step_seconds))
                os.kill(child.pid, signal.SIGKILL)
                break
        # What it said between the line that was waited for and its death.
        last = ([last, *(line.strip() for line in child.stdout)])[-1]
    lines, _ = run_to_end(setting, folder)
    return Killed(at_step, last, lines[0], folder / "final.safetensors")


def same_bits(one: Path, other: Path) -> bool:
    """Whether two files hold the same tensors, bit for bit."""
    ours, theirs = load_file(one), load_file(other)
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name].reshape(-1).view(torch.uint8), theirs[name].reshape(-1).view(torch.uint8))
        for name in ours
    )
