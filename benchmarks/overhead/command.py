"""`python -m benchmarks overhead`: the plain loop and ours in turns.

Writes `benchmarks/results/overhead.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks.breakdown import breakdown, shares
from benchmarks.loops import Lap, PlainLoop
from benchmarks.memory import peak_megabytes
from benchmarks.sheet import RESULTS, heading, ratio_table, write_sheet
from benchmarks.trainings import KEEP_FLOPS, train_in_turns
from benchmarks.waiting import waiting
from trainonce.pruning.schedule import LONG_RUN_EVERY, Phase, Schedule

BAR = 1.05
LOOPS = ("dense", "unshrunk")
PAPER_EVERY = LONG_RUN_EVERY

Kind = tuple[str, bool]
"""The phase of one of our steps, and whether the controller learned in it."""

_INTRODUCTION = """\
ResNet-{depth} on images of 32 x 32 (noise), batches of {batch}, float32, channels last, {steps} steps each, the whole schedule with
`keep_flops={keep}` and `shrink=False`. The two loops live in one process and take turns step by step (who goes first changes every
step), so that whatever else the machine does hits both alike. Memory: the largest resident set of processes of their own, {repeats} of
each in turns, {memory_steps} steps through all phases, medians.

A run this short gives the controller one update in {every} steps of the search, the highest rate there is; in long runs it is one in
{paper_every}. *medians*: the median step of each phase and kind, and of the plain steps beside them, times how often it occurs;
robust against disturbances.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("--depth", type=int, default=56, help="of the ResNet (default: 56)")
    parser.add_argument(
        "--steps", type=int, default=400, metavar="N", help="length of each run (default: 400)"
    )
    parser.add_argument("--batch-size", type=int, default=128, metavar="N")
    parser.add_argument("--memory-steps", type=int, default=16, metavar="N")
    parser.add_argument("--memory-repeats", type=int, default=3, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULTS / "overhead.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bar is missed."""
    architecture = f"resnet{arguments.depth}"
    num_repeats = arguments.memory_repeats * len(LOOPS)
    with waiting(arguments.steps + num_repeats * arguments.memory_steps, "time") as bar:
        found = train_in_turns(
            LOOPS,
            architecture=architecture,
            num_steps=arguments.steps,
            batch_size=arguments.batch_size,
            advance=bar.advance,
        )
        bar.say("memory")
        peaks: dict[str, list[tuple[float, float]]] = {name: [] for name in LOOPS}
        for number in range(num_repeats):
            name = LOOPS[number % 2]
            sizes = {"batch_size": arguments.batch_size, "num_steps": arguments.memory_steps}
            peaks[name].append(peak_megabytes(name, beside=LOOPS, architecture=architecture, **sizes))
            bar.advance(arguments.memory_steps)
    plain, ours = (found[name].laps for name in LOOPS)
    whole = {name: median(peak for peak, _ in found) for name, found in peaks.items()}
    above = {name: median(peak for _, peak in found) for name, found in peaks.items()}
    kinds = [(lap.phase, lap.is_update) for lap in ours]
    ratios = {
        "time, sum of all steps": _total(ours) / _total(plain),
        "time, medians": _by_medians(ours, kinds) / _by_medians(plain, kinds),
        "CPU seconds of all threads, sum of all steps": sum(lap.cpu for lap in ours)
        / sum(lap.cpu for lap in plain),
        f"time, medians, one controller update in {PAPER_EVERY} steps, as in long runs": _long_run(
            ours, kinds
        )
        / _by_medians(plain, kinds),
        "largest memory of the process": whole["unshrunk"] / whole["dense"],
        "largest memory above that of the imports": above["unshrunk"] / above["dense"],
    }
    lines = _sheet(arguments, plain, ours, found["unshrunk"].loop, ratios)
    lines += [
        f"Memory: plain {whole['dense']:.0f} MB, ours {whole['unshrunk']:.0f} MB; before the model "
        f"{_before(peaks):.0f} MB."
    ]
    write_sheet(arguments.out, lines)
    return 0 if all(ratio <= BAR for ratio in ratios.values()) else 1


def _sheet(
    args: argparse.Namespace,
    plain: Sequence[Lap],
    ours: Sequence[Lap],
    loop: PlainLoop,
    ratios: Mapping[str, float],
) -> list[str]:
    words = _INTRODUCTION.format(
        depth=args.depth,
        batch=args.batch_size,
        steps=args.steps,
        keep=KEEP_FLOPS,
        every=Schedule().in_steps(args.steps).update_every,
        paper_every=PAPER_EVERY,
        repeats=args.memory_repeats,
        memory_steps=args.memory_steps,
    )
    return [
        "# Overhead of controller, gates and projection, without the shrink",
        "",
        *heading(seeds="seed 0", packages=("torch", "trainonce")),
        "",
        words,
        *ratio_table(ratios, BAR),
        "",
        "## One step, milliseconds (medians)",
        "",
        *breakdown(plain, ours),
        "",
        f"Once per run, not in the ratios: attach {loop.setup_seconds:.1f} s, finish (the cut with its "
        f"proof) {loop.finish_seconds:.1f} s.",
        "",
        f"Shares of all of our steps' time: {shares(ours)}.",
        "",
    ]


def _total(laps: Sequence[Lap]) -> float:
    return sum(lap.wall for lap in laps)


def _by_medians(laps: Sequence[Lap], kinds: Sequence[Kind]) -> float:
    """The median step of each kind, times how many there are.

    The plain loop's steps are of the kind of ours beside them.
    """
    total = 0.0
    for kind in set(kinds):
        of_kind = [lap.wall for lap, its_kind in zip(laps, kinds, strict=True) if its_kind == kind]
        total += len(of_kind) * median(of_kind)
    return total


def _long_run(laps: Sequence[Lap], kinds: Sequence[Kind]) -> float:
    """As `_by_medians`, with as many updates as a long run has."""
    num_updates = sum(lap.is_update for lap in laps)
    update = median(lap.controller for lap in laps if lap.is_update) if num_updates else 0.0
    num_searching = sum(lap.phase == Phase.SEARCH for lap in laps)
    return _by_medians(laps, kinds) - (num_updates - num_searching / PAPER_EVERY) * update


def _before(peaks: dict[str, list[tuple[float, float]]]) -> float:
    return mean(peak - above for found in peaks.values() for peak, above in found)
