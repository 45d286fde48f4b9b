"""`python -m benchmarks kills`: one run of `trainonce train`, killed again and again.

Writes `benchmarks/results/kills.md`.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.killing.killing import (
    ARTIFACT,
    Command,
    Found,
    kill_after,
    leftovers,
    look_at,
    newest_step,
    run_to_end,
    same_files,
)
from benchmarks.sheets.options import add_number, add_seed
from benchmarks.sheets.sheet import Bar, bar_table, exit_code, heading, table, write_sheet, yes
from benchmarks.sheets.waiting import waiting

INTRODUCTION = """\
One training, killed with SIGKILL again and again and each time started by the same command,

    trainonce {words}

which saves after every step and goes on where the folder says. The first kill comes at a random moment
before the first checkpoint, the last one at a random moment after the last step, while the small model and
the report are written; the others at a random moment of the time that a step with its save takes, after
random steps of the whole run: {phases}.

- *newest checkpoint*: what the kill left, and the next process goes on from.
- *during a save*: half a checkpoint was left beside it, so the kill hit the writing of one, or the removal
  of the oldest.
- *unreadable*: whole checkpoints whose content doesn't match its sha256 sums.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--kills", 20, "how often the run is killed, at least 2")
    add_number(parser, "--epochs", 4, "length of the run")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bar is missed."""
    command, chance = Command(arguments.epochs, arguments.seed), random.Random(arguments.seed)
    kills: list[Found] = []
    with tempfile.TemporaryDirectory() as folder, waiting(arguments.kills + 2, "undisturbed run") as bar:
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        seconds_to_start, seconds_per_step, seconds_to_finish = _measure_whole(command, whole)
        schedule = json.loads((whole / "report.json").read_text())["schedule"]
        bar.advance()
        total_steps = schedule["total_steps"]
        for step in [-1, *_choose_steps(chance, arguments.kills - 2, total_steps), total_steps]:
            bar.say(f"kill after step {step}" if step >= 0 else "kill before the first step")
            longest = {-1: seconds_to_start, total_steps: seconds_to_finish}.get(step, seconds_per_step)
            if kill_after(command.start(killed), killed, step, delay=longest * chance.random()):
                kills.append(look_at(killed))
            bar.advance()
        bar.say("to the end")
        run_to_end(command, killed)
        same, left = same_files(whole, killed), leftovers(killed)
        has_all = all((killed / name).is_file() for name in ("report.json", "report.html", "small/README.md"))
        same_records = _records(whole) == _records(killed)
    bars = _bars(arguments.kills, kills, same=same, same_records=same_records, left=left, has_all=has_all)
    write_sheet(
        arguments.out,
        "A run killed again and again",
        heading("trainonce", seeds=f"seed {arguments.seed} for the run and for the kills"),
        INTRODUCTION.format(words=" ".join(command.words("FOLDER")), phases=_spoken(schedule)),
        bar_table(bars),
        "## Kills",
        table(
            ("kill", "newest checkpoint", "during a save", "unreadable"),
            [_cells(*item) for item in enumerate(kills, start=1)],
        ),
    )
    return exit_code(bars)


def _measure_whole(command: Command, out: Path) -> tuple[float, float, float]:
    """Let a run finish.

    Seconds to its first checkpoint, seconds per step, and seconds after its last step.
    """
    times, steps = [time.monotonic()], [0]
    process = command.start(out)
    while process.poll() is None:
        step = newest_step(out)
        if step is not None and step > steps[-1]:
            times.append(time.monotonic())
            steps.append(step)
        time.sleep(0.001)
    if process.returncode:
        raise RuntimeError(f"the training exited with {process.returncode}; see its output above")
    return times[1] - times[0], (times[-1] - times[1]) / (steps[-1] - steps[1]), time.monotonic() - times[-1]


def _choose_steps(chance: random.Random, number: int, total_steps: int) -> list[int]:
    """Random steps in their order; the last steps are left out, because every process makes one at least."""
    return sorted(chance.sample(range(1, total_steps - number), number))


def _bars(
    wanted: int,
    kills: Sequence[Found],
    *,
    same: list[str],
    same_records: bool,
    left: list[str],
    has_all: bool,
) -> list[Bar]:
    num_unreadable, num_saving = (
        sum(len(kill.unreadable) for kill in kills),
        sum(kill.was_saving for kill in kills),
    )
    num_survived = len(kills) if len(same) == len(ARTIFACT) else 0
    return [
        (
            "kills with the same bits at the end",
            f"{wanted} of {wanted}, 1 during a save",
            f"{num_survived} of {wanted}, {num_saving} during a save",
            num_survived == wanted and num_saving >= 1,
        ),
        ("whole checkpoints that can't be read after a kill", "0", str(num_unreadable), num_unreadable == 0),
        (
            "files of the small model equal to the bit",
            ", ".join(ARTIFACT),
            ", ".join(same) or "none",
            len(same) == len(ARTIFACT),
        ),
        ("records of all epochs equal, but for the seconds", "yes", yes(same_records), same_records),
        ("half-written files left at the end", "none", ", ".join(left) or "none", not left),
        ("report, page and model card are there", "yes", yes(has_all), has_all),
    ]


def _records(out: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def _spoken(schedule: dict[str, object]) -> str:
    phases = schedule["phases"]
    assert isinstance(phases, dict)
    begun = {name: step for name, step in phases.items() if step is not None}
    return (
        ", ".join(f"{name} from step {step}" for name, step in begun.items())
        + f", end at step {schedule['total_steps']}"
    )


def _cells(number: int, kill: Found) -> tuple[object, ...]:
    return (
        number,
        "none" if kill.step is None else f"step {kill.step}",
        "yes" if kill.was_saving else "no",
        len(kill.unreadable),
    )
