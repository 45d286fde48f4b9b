"""`python -m benchmarks loading`: training steps on real and on constant batches.

Writes `benchmarks/results/loading.md`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.loading.measure import NUM_IMAGES, STEPS_PER_TURN, Steps, Subject, measure_steps
from benchmarks.sheet import RESULTS, bar_table, heading, table, write_sheet
from benchmarks.waiting import waiting

BAR = 0.95
SUBJECTS = (Subject(20, 32, 128), Subject(56, 32, 128), Subject(20, 8, 64))

_INTRODUCTION = """\
Steps of `fit` (forward, backward, optimizer, records) on {images} random images kept in memory, drawn in their order, shifted, flipped and
normalised anew for every batch, against the same steps on one batch that is made once. The two take turns, {steps} steps each, {turns}
turns; medians of CPU milliseconds per step of one process, which other work on the machine disturbs least.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument(
        "--turns", type=int, default=12, metavar="N", help="of each kind of batch (default: 12)"
    )
    parser.add_argument("--depth", type=int, metavar="N", help="only ResNets of this depth")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "loading.md", metavar="FILE")


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
    is_met = slowest >= BAR
    rows = [
        (f"ResNet-{subject.depth}", subject.image_size, subject.batch_size, f"{steps.constant_ms:.1f}", (
            f"{steps.real_ms:.1f}"
        ),
         f"{steps.speed:.3f}")
        for subject, steps in found
    ]  # fmt: skip
    write_sheet(
        arguments.out,
        [
            "# What reading and augmenting images costs",
            "",
            *heading(seeds=f"seed {arguments.seed}", packages=("torch", "trainonce")),
            "",
            _INTRODUCTION.format(images=NUM_IMAGES, steps=STEPS_PER_TURN, turns=arguments.turns),
            *bar_table(
                [
                    (
                        "speed with real data, of that with a constant batch, least of all",
                        f">= {BAR}",
                        f"{slowest:.3f}",
                        is_met,
                    )
                ]
            ),
            "",
            "## Steps",
            "",
            *table(("model", "pixels", "batch", "constant, ms", "real, ms", "speed with real data"), rows),
        ],
    )
    return 0 if is_met else 1
