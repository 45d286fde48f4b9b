"""`python -m benchmarks ddp`: `fit` and plain DDP in turns, in two processes.

Writes `benchmarks/results/ddp.md`.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import torch

from benchmarks.harness.children import child_environment
from benchmarks.sheets.options import add_number
from benchmarks.sheets.sheet import ROOT, heading, ratio_table, table, write_sheet
from benchmarks.sheets.waiting import waiting
from benchmarks.timing.breakdown import by_medians
from benchmarks.timing.ddp_child import EPOCHS, KEEP_FLOPS
from benchmarks.timing.turns import Turn
from trainonce.pruning.schedule import LONG_RUN_EVERY

BAR = 1.05
NUM_PROCESSES = 2
WARM_UP_STEPS = 2
"""The first pass through a shape compiles kernels."""

INTRODUCTION = """\
ResNet-{depth} on images of {size} x {size} (noise), {batch} per step in {processes} gloo processes of
{threads} thread(s) each, float32, {steps} steps through the whole schedule of `fit` with
`keep_flops={keep}`. Both loops live in the same processes and take turns step by step (who goes first
changes every step), each after a barrier. A step of ours is all that `fit` does from one batch to the next:
forward, backward, exchange, the check for what is not finite, optimizer, projection, controller, records.
The slower process counts. Left out on both sides: the first {warm_up} steps, validation, checkpoints, and
the steps in which the model is cut (they are on the sheet).

A run this short gives the controller more updates than a long one, where it is one in {every} steps of the
search. *medians*: the median step of each phase and kind, and of the plain steps beside them, times how
often it occurs; robust against disturbances. Two processes wait for each other, so anything else that the
machine does hits wall times twice: run it on idle cores.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--depth", 56, "of the ResNet", metavar=None)
    add_number(parser, "--steps", 240, "length of each run")
    add_number(parser, "--batch-size", 128, "over both processes")
    add_number(parser, "--image-size", 32)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bar is missed."""
    threads = max(1, torch.get_num_threads() // NUM_PROCESSES)
    found: dict[str, list[Turn]] = {}
    with waiting(2, "without the shrink") as bar:
        for words, shrink in (("without the shrink", False), ("with the shrink", True)):
            bar.say(words)
            found[words] = slower_of(run_processes(arguments, threads=threads, shrink=shrink))[WARM_UP_STEPS:]
            bar.advance()
    ratios = {
        f"{what}, {words}": ratio for words, turns in found.items() for what, ratio in compare(turns).items()
    }
    write_sheet(
        arguments.out,
        "A step of `fit` in two processes, beside plain DistributedDataParallel",
        heading("trainonce"),
        _introduction(arguments, threads),
        ratio_table(ratios, BAR),
        "## One step, milliseconds (medians)",
        table(("run", "step", "how many", "plain", "ours", "ours / plain"), _rows(found)),
    )
    return 0 if all(ratio <= BAR for ratio in ratios.values()) else 1


def run_processes(arguments: argparse.Namespace, *, threads: int, shrink: bool) -> list[list[Turn]]:
    """The turns of each process."""
    names = ("depth", "steps", "batch_size", "image_size")
    options = {name: getattr(arguments, name) for name in names} | {"threads": threads, "shrink": shrink}
    command = [sys.executable, "-m", "benchmarks.timing.ddp_child", json.dumps(options)]
    shared = child_environment(threads=threads) | {"WORLD_SIZE": str(NUM_PROCESSES)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    children = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(NUM_PROCESSES)
    ]
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise RuntimeError(
            f"the processes exited with {[child.returncode for child in children]}; see their output above"
        )
    return [[Turn(**turn) for turn in json.loads(output.splitlines()[-1])] for output in outputs]


def slower_of(processes: Sequence[Sequence[Turn]]) -> list[Turn]:
    """One list of turns: the longest time that any process took, the CPU seconds of all."""
    merged = []
    for turns in zip(*processes, strict=True):
        first = turns[0]
        assert all((turn.phase, turn.is_update) == (first.phase, first.is_update) for turn in turns), (
            "the processes differ"
        )
        merged.append(
            replace(
                first,
                plain=max(turn.plain for turn in turns),
                ours=max(turn.ours for turn in turns),
                plain_cpu=sum(turn.plain_cpu for turn in turns),
                ours_cpu=sum(turn.ours_cpu for turn in turns),
            )
        )
    return merged


def compare(turns: Sequence[Turn]) -> dict[str, float]:
    """Ours to plain, in several ways; the step of a cut is not a step like others."""
    turns = [turn for turn in turns if not turn.is_cut]
    kinds = [(turn.phase, turn.is_update) for turn in turns]
    plain, ours = (by_medians([getattr(turn, name) for turn in turns], kinds) for name in ("plain", "ours"))
    return {
        "time, sum of all steps": sum(turn.ours for turn in turns) / sum(turn.plain for turn in turns),
        "time, medians": ours / plain,
        f"time, medians, one controller update in {LONG_RUN_EVERY} steps": (
            ours - _update_seconds_beyond(turns)
        )
        / plain,
        "CPU seconds of both processes, sum of all steps": sum(turn.ours_cpu for turn in turns)
        / sum(turn.plain_cpu for turn in turns),
    }


def _update_seconds_beyond(turns: Sequence[Turn]) -> float:
    """What the updates cost that a long run would not have made, before and after the first cut."""
    phases = {turn.phase for turn in turns if turn.is_update}
    return sum(_update_seconds_beyond_in([turn for turn in turns if turn.phase == phase]) for phase in phases)


def _update_seconds_beyond_in(searching: Sequence[Turn]) -> float:
    updates, others = ([turn for turn in searching if turn.is_update is kind] for kind in (True, False))
    if not updates or not others:
        return 0.0
    plain = median(turn.plain for turn in updates)
    # Beside the plain steps of their own moments: the machine may have been slower then.
    extra = median(turn.ours for turn in updates) / plain - median(turn.ours for turn in others) / median(
        turn.plain for turn in others
    )
    return max(0.0, len(updates) - len(searching) / LONG_RUN_EVERY) * extra * plain


def _introduction(arguments: argparse.Namespace, threads: int) -> str:
    return INTRODUCTION.format(
        depth=arguments.depth,
        size=arguments.image_size,
        batch=arguments.batch_size,
        processes=NUM_PROCESSES,
        threads=threads,
        steps=arguments.steps // EPOCHS * EPOCHS,
        keep=KEEP_FLOPS,
        warm_up=WARM_UP_STEPS,
        every=LONG_RUN_EVERY,
    )


def _rows(found: dict[str, list[Turn]]) -> list[Sequence[object]]:
    """The median step of each kind in each run."""
    rows: list[Sequence[object]] = []
    for name, turns in found.items():
        kinds = [("a cut" if turn.is_cut else turn.phase, turn.is_update) for turn in turns]
        for kind in dict.fromkeys(kinds):
            of_kind = [turn for turn, its_kind in zip(turns, kinds, strict=True) if its_kind == kind]
            plain, ours = median(turn.plain for turn in of_kind), median(turn.ours for turn in of_kind)
            what = f"{kind[0]}, controller learns" if kind[1] else kind[0]
            figures = (f"{1000 * plain:.1f}", f"{1000 * ours:.1f}", f"{ours / plain:.2f}")
            rows.append((name, what, len(of_kind), *figures))
    return rows


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
