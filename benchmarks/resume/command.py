"""`python -m benchmarks resume`: twenty killed and resumed trainings.

Writes `benchmarks/results/resume.md`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from itertools import groupby
from pathlib import Path

from benchmarks.resume.killing import Killed, Setting, kill_and_resume, run_to_end, same_bits
from benchmarks.sheet import RESULTS, bar_table, heading, table, write_sheet, yes
from benchmarks.waiting import waiting

_INTRODUCTION = """\
ResNet-20 on scikit-learn's digits in a loop of the user's own, {steps} steps, `keep_flops=0.45`, a checkpoint every {every} steps (model,
optimizer, pruner, random stream, place in the data; safetensors and JSON, no pickle). Each row is a training killed with SIGKILL at a
random moment of a random step of a phase, started again by the same command on a freshly built dense model, and trained to the end.
*same bits*: its final weights and buffers are those of the run that nobody disturbed, bit for bit.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument(
        "--kills", type=int, default=20, metavar="N", help="how many runs are killed (default: 20)"
    )
    parser.add_argument(
        "--steps", type=int, default=150, metavar="N", help="length of each run (default: 150)"
    )
    parser.add_argument(
        "--every", type=int, default=4, metavar="N", help="steps between checkpoints (default: 4)"
    )
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "resume.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bit differs."""
    setting = Setting(arguments.steps, arguments.every, arguments.batch_size, arguments.seed)
    chance = random.Random(arguments.seed)
    found: list[tuple[Killed, bool]] = []
    with tempfile.TemporaryDirectory() as folder, waiting(arguments.kills + 1, "undisturbed run") as bar:
        place = Path(folder)
        lines, seconds = run_to_end(setting, place / "whole")
        bar.advance()
        phases = _steps_by_phase(lines)
        for number in range(arguments.kills):
            phase = list(phases)[number % len(phases)]
            step = chance.choice(phases[phase])
            bar.say(f"kill at step {step}, {phase}")
            killed = kill_and_resume(
                setting, place / str(number), step, chance=chance, step_seconds=seconds / arguments.steps
            )
            found.append((killed, same_bits(killed.final, place / "whole" / "final.safetensors")))
            bar.advance()
    good = sum(same for _, same in found)
    rows = [
        (number + 1, _spoken(killed.died_after), _spoken(killed.went_on_from), yes(same))
        for number, (killed, same) in enumerate(found)
    ]
    write_sheet(
        arguments.out,
        [
            "# Resume after kill -9",
            "",
            *heading(
                seeds=f"seed {arguments.seed} for the runs and for the kills", packages=("torch", "trainonce")
            ),
            "",
            _INTRODUCTION.format(steps=arguments.steps, every=arguments.every),
            f"The undisturbed run: {_summary(phases)}.",
            "",
            *bar_table(
                [
                    (
                        "killed runs with the same bits at the end",
                        "all",
                        f"{good} of {len(found)}",
                        good == len(found),
                    )
                ]
            ),
            "",
            "## Kills",
            "",
            *table(("run", "killed after", "resumed from", "same bits"), rows),
        ],
    )
    return 0 if good == len(found) else 1


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
