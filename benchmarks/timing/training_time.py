"""`python -m benchmarks training_time`: whole trainings in turns.

Writes `benchmarks/results/training_time.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.peers.hesso import MISSING, python_of_peer
from benchmarks.sheets.options import add_hesso_python, add_number
from benchmarks.sheets.sheet import heading, ratio_table, table, write_sheet
from benchmarks.sheets.waiting import waiting
from benchmarks.timing.hesso_child import measure_hesso
from benchmarks.timing.loops import Lap
from benchmarks.timing.trainings import KEEP_FLOPS, Training, train_in_turns

BAR = 0.80
CONTENDERS = {
    "dense": "dense",
    "ours": "ours, shrinking",
    "taught": "ours, shrinking, with a teacher",
    "torch_pruning": "Torch-Pruning: train, prune, fine-tune",
}

_HEADER = (
    *("contender", "seconds", "of dense", "steps only", "CPU, steps only", "once, s"),
    *("first tenth", "last tenth", "FLOPs of the result"),
)

INTRODUCTION = """\
ResNet-{depth} on images of 32 x 32 (noise), batches of {batch}, float32, channels last, {steps} steps for
everyone, really run. The loops live in one process and take turns step by step, in an order that rotates,
so that whatever else the machine does hits all alike. HESSO needs torch 2.4.1 and so an environment of its
own, and it refuses channels last: there it takes turns with a dense loop of that environment and layout,
and its ratio is to that one. Accuracy is another table's matter.

- *seconds*: the whole training; what is done *once* (attaching, pruning, cutting) is in them, and weighs
  less in longer runs.

- *ours*: `trainonce.attach(..., keep_flops={keep})`, all else default; the model is cut when the units that
  go are at zero.
- *with a teacher*: the same with `teacher=True`: the model as it was answers every batch, too, at its full
  size to the end. Its steps are compared with ours beside them below.
- *Torch-Pruning*: half of the steps, then pruned to the same FLOPs, every layer by the same ratio as in its
  README, then the other half.
- *HESSO*: only_train_once, with the share of its groups to go that leaves about the same FLOPs in ResNets,
  pruned from 10 % to 25 % of the run, cut at the end; its time does not depend on how much goes, as the
  model stays whole until then.
- *first tenth*, *last tenth*: milliseconds of the median step there.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--depth", 56, "of the ResNet", metavar=None)
    add_number(parser, "--steps", 300, "length of each run")
    add_number(parser, "--batch-size", 128)
    add_hesso_python(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if the bar is missed."""
    python = python_of_peer(arguments.hesso_python)
    sizes = {
        "architecture": f"resnet{arguments.depth}",
        "num_steps": arguments.steps,
        "batch_size": arguments.batch_size,
    }
    with waiting(arguments.steps * (2 if python else 1), "ours, dense, Torch-Pruning") as bar:
        found = train_in_turns(tuple(CONTENDERS), **sizes, advance=bar.advance)
        bar.say("HESSO, dense on torch 2.4.1")
        hesso = measure_hesso(python, **sizes, advance=bar.advance) if python else None
    dense, ours = found["dense"], found["ours"]
    ratio = ours.seconds / dense.seconds
    words = INTRODUCTION.format(
        depth=arguments.depth, batch=arguments.batch_size, steps=arguments.steps, keep=KEEP_FLOPS
    )
    ratios = {
        "time of the whole training": ratio,
        "time, steps only": ours.step_seconds / dense.seconds,
        "CPU seconds of all threads, steps only": ours.cpu_seconds / dense.cpu_seconds,
    }
    rows = [_cells(words, found[name], dense) for name, words in CONTENDERS.items()]
    write_sheet(
        arguments.out,
        "Training time with the shrink",
        heading("torch-pruning", "trainonce"),
        words,
        ratio_table(ratios, BAR, beside="dense"),
        table(_HEADER, [*rows, *_hesso_cells(hesso)]),
        "## One step with a teacher, and one without (medians)",
        cost_of_teacher(ours.laps, found["taught"].laps),
    )
    return 0 if ratio <= BAR else 1


def cost_of_teacher(plain: Sequence[Lap], taught: Sequence[Lap]) -> list[str]:
    """For each kind of step, the median with a teacher beside that without, as Markdown.

    The two make their cuts within a step or two of each other; steps of different kinds are left out.
    """
    pairs = [
        (one, other)
        for one, other in zip(plain, taught, strict=True)
        if (one.phase, one.is_update) == (other.phase, other.is_update)
    ]
    rows = []
    for phase, is_update in dict.fromkeys((one.phase, one.is_update) for one, _ in pairs):
        of_kind = [pair for pair in pairs if (pair[0].phase, pair[0].is_update) == (phase, is_update)]
        without, with_one = (1000 * median(lap.wall for lap in laps) for laps in zip(*of_kind, strict=True))
        name = f"{phase}, controller learns" if is_update else phase
        rows.append(
            (name, len(of_kind), f"{without:.0f} ms", f"{with_one:.0f} ms", f"{with_one / without:.3f}")
        )
    return table(("step", "how many", "without", "with a teacher", "with / without"), rows)


def _cells(name: str, training: Training, dense: Training) -> tuple[str, ...]:
    laps = training.laps
    tenth = max(1, len(laps) // 10)
    first, last = (1000 * median(lap.wall for lap in part) for part in (laps[:tenth], laps[-tenth:]))
    ratios = (
        training.seconds / dense.seconds,
        training.step_seconds / dense.seconds,
        training.cpu_seconds / dense.cpu_seconds,
    )
    return (
        name,
        f"{training.seconds:.1f}",
        *(f"{ratio:.3f}" for ratio in ratios),
        f"{training.once:.1f}",
        f"{first:.0f} ms",
        f"{last:.0f} ms",
        f"{training.share_of_flops:.3f}",
    )


def _hesso_cells(found: dict[str, Any] | None) -> list[tuple[str, ...]]:
    if found is None or "failure" in found:
        return [("HESSO", found["failure"] if found else MISSING, *"-------")]
    dense, hesso = found["dense"], found["hesso"]
    steps_only = hesso["seconds"] - hesso["once"]
    ratios = (hesso["seconds"] / dense["seconds"], steps_only / dense["seconds"], hesso["cpu"] / dense["cpu"])
    said = [f"{ratio:.3f}" for ratio in ratios]
    where, seconds = f"dense on {found['versions']}", f"{dense['seconds']:.1f}"
    share, once = f"{hesso['share']:.3f}", f"{hesso['once']:.1f}"
    return [
        (where, seconds, *["1.000"] * 3, "0.0", "-", "-", "1.000"),
        ("HESSO, same environment", f"{hesso['seconds']:.1f}", *said, once, "-", "-", share),
    ]
