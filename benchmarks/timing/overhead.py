"""`python -m benchmarks overhead`: the plain loop and ours in turns.

Writes `benchmarks/results/overhead.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import mean, median

from benchmarks.sheets.options import add_number
from benchmarks.sheets.sheet import heading, ratio_table, write_sheet
from benchmarks.sheets.waiting import waiting
from benchmarks.timing.breakdown import breakdown, by_medians, shares
from benchmarks.timing.loops import Lap
from benchmarks.timing.memory import median_peaks
from benchmarks.timing.trainings import KEEP_FLOPS, add_sizes, train_in_turns
from trainonce.pruning.schedule import LONG_RUN_EVERY, Phase, Schedule

BAR = 1.05
LOOPS = ("dense", "unshrunk")

INTRODUCTION = """\
ResNet-{depth} on images of 32 x 32 (noise), batches of {batch}, float32, channels last, {steps} steps each,
the whole schedule with `keep_flops={keep}` and `shrink=False`. The two loops live in one process and take
turns step by step (who goes first changes every step), so that whatever else the machine does hits both
alike. Memory: the largest resident set of processes of their own, {repeats} of each in turns,
{memory_steps} steps through all phases, medians.

A run this short gives the controller one update in {every} steps of the search, the highest rate there is;
in long runs it is one in {paper_every}. *medians*: the median step of each phase and kind, and of the plain
steps beside them, times how often it occurs; robust against disturbances.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--depth", 56, "of the ResNet", metavar=None)
    add_number(parser, "--steps", 400, "length of each run")
    add_sizes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bar is missed."""
    architecture = f"resnet{arguments.depth}"
    num_repeats, memory_steps = arguments.memory_repeats, arguments.memory_steps
    with waiting(arguments.steps + num_repeats * len(LOOPS) * memory_steps, "time") as bar:
        found = train_in_turns(
            LOOPS,
            architecture=architecture,
            num_steps=arguments.steps,
            batch_size=arguments.batch_size,
            advance=bar.advance,
        )
        bar.say("memory")
        peaks = median_peaks(
            LOOPS,
            architecture=architecture,
            batch_size=arguments.batch_size,
            num_steps=memory_steps,
            num_repeats=num_repeats,
            advance=lambda: bar.advance(memory_steps),
        )
    plain, ours = (found[name].laps for name in LOOPS)
    (whole_plain, above_plain), (whole_ours, above_ours) = (peaks[name] for name in LOOPS)
    kinds = [(lap.phase, lap.is_update) for lap in ours]
    walls = {name: [lap.wall for lap in found[name].laps] for name in LOOPS}
    plain_medians, our_medians = (by_medians(walls[name], kinds) for name in LOOPS)
    long_run = f"time, medians, one controller update in {LONG_RUN_EVERY} steps, as in long runs"
    ratios = {
        "time, sum of all steps": sum(walls["unshrunk"]) / sum(walls["dense"]),
        "time, medians": our_medians / plain_medians,
        "CPU seconds of all threads, sum of all steps": sum(lap.cpu for lap in ours)
        / sum(lap.cpu for lap in plain),
        long_run: (our_medians - _seconds_beyond_long_run(ours)) / plain_medians,
        "largest memory of the process": whole_ours / whole_plain,
        "largest memory above that of the imports": above_ours / above_plain,
    }
    loop, before = found["unshrunk"].loop, mean(whole - above for whole, above in peaks.values())
    write_sheet(
        arguments.out,
        "Overhead of controller, gates and projection, without the shrink",
        heading("trainonce"),
        _introduction(arguments),
        ratio_table(ratios, BAR),
        "## One step, milliseconds (medians)",
        breakdown(plain, ours),
        f"Once per run, not in the ratios: attach {loop.setup_seconds:.1f} s, finish (the cut with its "
        f"proof) {loop.finish_seconds:.1f} s.",
        f"Shares of all of our steps' time: {shares(ours)}.",
        f"Memory: plain {whole_plain:.0f} MB, ours {whole_ours:.0f} MB; before the model {before:.0f} MB.",
    )
    return 0 if all(ratio <= BAR for ratio in ratios.values()) else 1


def _introduction(arguments: argparse.Namespace) -> str:
    return INTRODUCTION.format(
        depth=arguments.depth,
        batch=arguments.batch_size,
        steps=arguments.steps,
        keep=KEEP_FLOPS,
        every=Schedule().in_steps(arguments.steps).update_every,
        paper_every=LONG_RUN_EVERY,
        repeats=arguments.memory_repeats,
        memory_steps=arguments.memory_steps,
    )


def _seconds_beyond_long_run(laps: Sequence[Lap]) -> float:
    """What the updates cost that a long run would not have made."""
    updates = [lap.controller for lap in laps if lap.is_update]
    num_searching = sum(lap.phase == Phase.SEARCH for lap in laps)
    return (len(updates) - num_searching / LONG_RUN_EVERY) * median(updates) if updates else 0.0
