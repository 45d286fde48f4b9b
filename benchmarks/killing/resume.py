"""`python -m benchmarks resume`: twenty killed and resumed trainings.

Writes `benchmarks/results/resume.md`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.harness.children import child_environment
from benchmarks.sheets.options import add_number, add_seed
from benchmarks.sheets.sheet import ROOT, bar_table, count_bar, exit_code, heading, table, write_sheet, yes
from benchmarks.sheets.waiting import waiting

_FINAL = "final.safetensors"
INTRODUCTION = """\
ResNet-20 on scikit-learn's digits in a loop of the user's own, {steps} steps, `keep_flops=0.45`, a
checkpoint every {every} steps (model, optimizer, pruner, random stream, place in the data; safetensors and
JSON, no pickle). Each row is a training killed with SIGKILL at a random moment of a random step of a phase,
started again by the same command on a freshly built dense model, and trained to the end. *same bits*: its
final weights and buffers are those of the run that nobody disturbed, bit for bit.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--kills", 20, "how many runs are killed")
    add_number(parser, "--steps", 150, "length of each run")
    add_number(parser, "--every", 4, "steps between checkpoints")
    add_number(parser, "--batch-size", 32)
    add_seed(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bit differs."""
    words = [str(getattr(arguments, name)) for name in ("steps", "every", "batch_size", "seed")]
    chance, rows = random.Random(arguments.seed), []
    with tempfile.TemporaryDirectory() as folder, waiting(arguments.kills + 1, "undisturbed run") as bar:
        whole = Path(folder) / "whole"
        lines, seconds = _run_to_end(words, whole)
        bar.advance()
        phases = _steps_by_phase(lines)
        for number in range(1, arguments.kills + 1):
            phase = list(phases)[(number - 1) % len(phases)]
            step = chance.choice(phases[phase])
            bar.say(f"kill at step {step}, {phase}")
            place = Path(folder) / str(number)
            delay = chance.uniform(0, seconds / arguments.steps)
            killed = _kill_and_resume(words, place, step, delay=delay)
            # The same tensors under the same names are the same bytes.
            same = (place / _FINAL).read_bytes() == (whole / _FINAL).read_bytes()
            rows.append((number, _spoken(killed.died_after), _spoken(killed.went_on_from), yes(same)))
            bar.advance()
    num_good = sum(row[-1] == yes(True) for row in rows)
    bars = [count_bar("killed runs with the same bits at the end", num_good, len(rows))]
    write_sheet(
        arguments.out,
        "Resume after kill -9",
        heading("trainonce", seeds=f"seed {arguments.seed} for the runs and for the kills"),
        INTRODUCTION.format(steps=arguments.steps, every=arguments.every),
        f"The undisturbed run: {_summary(phases)}.",
        bar_table(bars),
        "## Kills",
        table(("run", "killed after", "resumed from", "same bits"), rows),
    )
    return exit_code(bars)


@dataclass(frozen=True, slots=True)
class _Killed:
    """The last line before the kill, and the first line after it."""

    died_after: str
    went_on_from: str


def _start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """The one command that starts a training and that resumes it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.killing.child", str(folder), *words]
    return subprocess.Popen(command, cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, text=True)


def _run_to_end(words: list[str], folder: Path) -> tuple[list[str], float]:
    """All lines of a run that nobody disturbs, and the seconds after the first of them."""
    with _start(words, folder) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline().strip()]
        start = time.perf_counter()
        lines += [line.strip() for line in child.stdout]
    if child.returncode:
        raise RuntimeError(f"the training exited with {child.returncode}; see its output above")
    return lines, time.perf_counter() - start


def _kill_and_resume(words: list[str], folder: Path, at_step: int, *, delay: float) -> _Killed:
    """SIGKILL `delay` seconds after the line of `at_step`, then the same command again to the end."""
    last = ""
    with _start(words, folder) as child:
        assert child.stdout is not None
        for line in child.stdout:
            last = line.strip()
            if int(last.split()[1]) >= at_step:
                time.sleep(delay)
                os.kill(child.pid, signal.SIGKILL)
                break
        # What it said between the line that was waited for and its death.
        last = ([last, *(line.strip() for line in child.stdout)])[-1]
    lines, _ = _run_to_end(words, folder)
    return _Killed(last, lines[0])


def _steps_by_phase(lines: list[str]) -> dict[str, list[int]]:
    """The steps of each phase of the undisturbed run, from lines like `step 7 search`.

    The last step is no place to be killed at.
    """
    told = [line.split(maxsplit=2) for line in lines if line.startswith("step ")][:-1]
    return {
        phase: [int(step) for _, step, _ in group]
        for phase, group in groupby(told, key=lambda words: words[2])
    }


def _spoken(line: str) -> str:
    _, step, phase = line.split(maxsplit=2)
    return f"step {step} ({phase})"


def _summary(phases: dict[str, list[int]]) -> str:
    return ", ".join(f"{phase} in steps {steps[0]} to {steps[-1]}" for phase, steps in phases.items())
