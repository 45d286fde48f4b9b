"""`python -m benchmarks loading`: training steps on real and on constant batches.

Writes `benchmarks/results/loading.md`.
"""

from __future__ import annotations

import argparse

from benchmarks.sheets.options import add_number, add_seed
from benchmarks.sheets.sheet import bar_table, exit_code, heading, table, write_sheet
from benchmarks.sheets.waiting import waiting
from benchmarks.timing.loading_steps import NUM_IMAGES, STEPS_PER_TURN, Steps, Subject, measure_steps

BAR = 0.95
SUBJECTS = (Subject(20, 32, 128), Subject(56, 32, 128), Subject(20, 8, 64))

INTRODUCTION = """\
Steps of `fit` (forward, backward, optimizer, records) on {images} random images kept in memory, drawn in
their order, shifted, flipped and normalised anew for every batch, against the same steps on one batch that
is made once. The two take turns, {steps} steps each, {turns} turns; medians of CPU milliseconds per step of
one process, which other work on the machine disturbs least.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--turns", 12, "of each kind of batch")
    parser.add_argument("--depth", type=int, metavar="N", help="only ResNets of this depth")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if the bar is missed."""
    subjects = [subject for subject in SUBJECTS if arguments.depth in (None, subject.depth)]
    found: list[tuple[Subject, Steps]] = []
    with waiting(len(subjects), "loading") as bar:
        for subject in subjects:
            bar.say(f"ResNet-{subject.depth}, {subject.image_size} pixels")
            found.append((subject, measure_steps(subject, num_turns=arguments.turns, seed=arguments.seed)))
            bar.advance()
    slowest = min((steps.speed for _, steps in found), default=0.0)
    what = "speed with real data, of that with a constant batch, least of all"
    bars = [(what, f">= {BAR}", f"{slowest:.3f}", slowest >= BAR)]
    rows = [
        (
            *(f"ResNet-{subject.depth}", subject.image_size, subject.batch_size),
            *(f"{steps.constant_ms:.1f}", f"{steps.real_ms:.1f}", f"{steps.speed:.3f}"),
        )
        for subject, steps in found
    ]
    write_sheet(
        arguments.out,
        "What reading and augmenting images costs",
        heading("trainonce", seeds=f"seed {arguments.seed}"),
        INTRODUCTION.format(images=NUM_IMAGES, steps=STEPS_PER_TURN, turns=arguments.turns),
        bar_table(bars),
        "## Steps",
        table(("model", "pixels", "batch", "constant, ms", "real, ms", "speed with real data"), rows),
    )
    return exit_code(bars)
