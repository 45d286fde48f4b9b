"""Kill a run of the command line and look at what is left.

Takes a folder and a moment, gives what a resume will find there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.children import child_environment
from trainonce.errors import CheckpointError
from trainonce.storage.atomic import drafts_in
from trainonce.storage.checkpoint.folder import read_checkpoint

ARTIFACT = ("model.safetensors", "plan.json")
_SECONDS_BETWEEN_LOOKS = 0.001
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class Command:
    """The one command that starts a run and that goes on with it."""

    epochs: int
    seed: int

    def words(self, out: Path | str) -> list[str]:
        """What follows `trainonce`; every step saves."""
        numbers = ["--epochs", str(self.epochs), "--seed", str(self.seed), "--save-minutes", "0"]
        return ["train", "digits.resnet20", *numbers, "--resume", "auto", "--out", str(out)]

    def start(self, out: Path) -> subprocess.Popen[bytes]:
        """A process that trains into `out`; it shows nothing."""
        words = [sys.executable, "-m", "trainonce", *self.words(out), "--quiet"]
        return subprocess.Popen(words, env=child_environment(), stdout=subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Found:
    """What a killed process has left."""

    step: int | None
    """The newest checkpoint; None if there is none yet."""

    was_saving: bool
    """Whether half a checkpoint is there."""

    unreadable: tuple[str, ...]
    """What is wrong with whole checkpoints, one line each."""


def kill_after(process: subprocess.Popen[bytes], out: Path, step: int, *, delay: float) -> bool:
    """SIGKILL so many seconds after a step was saved (-1: after the start).

    False if the process had ended by itself.
    """
    before = newest_step(out)
    while (
        process.poll() is None
        and step >= 0
        and (newest_step(out) == before or (newest_step(out) or 0) < step)
    ):
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    time.sleep(delay)
    is_alive = process.poll() is None
    process.kill()
    process.wait()
    return is_alive


def run_to_end(command: Command, out: Path) -> None:
    """Let a run finish; an exit code other than 0 is an error."""
    if code := command.start(out).wait():
        raise RuntimeError(f"the training exited with {code}; see its output above")


def look_at(out: Path) -> Found:
    """What is in the folder of checkpoints."""
    unreadable = []
    for path in _checkpoints(out):
        try:
            read_checkpoint(path)
        except CheckpointError as error:
            unreadable.append(str(error))
    return Found(newest_step(out), bool(drafts_in(out / "checkpoints")), tuple(unreadable))


def newest_step(out: Path) -> int | None:
    """The newest step that has a checkpoint."""
    return max((int(path.name.removeprefix("step-")) for path in _checkpoints(out)), default=None)


def _checkpoints(out: Path) -> list[Path]:
    """Those that have their name; the run goes on while this looks."""
    try:
        return [path for path in (out / "checkpoints").iterdir() if _STEP.fullmatch(path.name)]
    except FileNotFoundError:
        return []


def leftovers(out: Path) -> list[str]:
    """Hidden files and folders, which only a process that writes may have.

    The lock is an empty file that stays.
    """
    return sorted(str(path.relative_to(out)) for path in out.rglob(".*") if path.name != ".lock")


def same_files(one: Path, other: Path) -> list[str]:
    """The files of the small model that two runs have bit for bit in common."""
    pairs = [(name, one / "small" / name, other / "small" / name) for name in ARTIFACT]
    return [
        name
        for name, ours, theirs in pairs
        if ours.is_file() and theirs.is_file() and ours.read_bytes() == theirs.read_bytes()
    ]
