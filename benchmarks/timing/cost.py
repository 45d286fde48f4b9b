"""`python -m benchmarks cost`: time, memory and latency of whole trainings.

Writes `benchmarks/results/cost.md`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.harness.architectures import said_architecture
from benchmarks.peers.hesso import MISSING, python_of_peer
from benchmarks.sheets.options import add_hesso_python, add_number, add_several
from benchmarks.sheets.sheet import heading, table, write_sheet
from benchmarks.sheets.waiting import Waiting, waiting
from benchmarks.timing.breakdown import breakdown, shares
from benchmarks.timing.costs import Cost, Sizes, measure_here, measure_there
from benchmarks.timing.trainings import KEEP_FLOPS, add_sizes

ARCHITECTURES = ("resnet56", "mobilenet_v2")
_WORDS = {"dense": "dense", "ours": "ours", "torch_pruning": "Torch-Pruning"}
_WORDS_THERE = {"dense": "dense, HESSO's environment", "hesso": "HESSO, its environment"}

INTRODUCTION = """\
Images of 32 x 32 (noise), batches of {batch}, float32, {steps} steps for everyone, really run, step by step
in turns; `keep_flops={keep}`. HESSO runs in an environment of its own (torch 2.4.1) and without channels
last, beside a dense model there: compare it with that one. It takes a share of groups, not of FLOPs; the
one that leaves about as many in ResNets is taken. Torch-Pruning prunes at half-time. What the models learn
from noise is no matter here: accuracy is another table.

- *training*: seconds of the whole training, with what is done *once* (attaching, pruning, cutting); *CPU*:
  of all threads, steps only.
- *memory*: the largest resident set of a process that does this training alone, {memory_steps} steps
  through all phases, median of {repeats}; *above*: how much of it was not there before the training, when
  the packages were imported.
- *latency*: of the final model in eval mode, for one image and for a batch, eager, in turns, median.
- After each figure, in brackets, its ratio to the dense model's of the same environment.
"""

_HEADER = (
    *("contender", "training, s", "once, s", "CPU, s", "memory, MB", "above, MB"),
    *("latency of 1, ms", "latency of a batch, ms", "FLOPs"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_several(parser, "--model", "resnetN or mobilenet_v2", shown="resnet56, mobilenet_v2")
    add_number(parser, "--steps", 300, "length of each training")
    add_sizes(parser)
    add_number(parser, "--latency-seconds", 20.0, "for each number of images", metavar="S")
    add_hesso_python(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet."""
    python = python_of_peer(arguments.hesso_python)
    names = arguments.model or ARCHITECTURES
    words = INTRODUCTION.format(
        batch=arguments.batch_size,
        steps=arguments.steps,
        keep=KEEP_FLOPS,
        memory_steps=arguments.memory_steps,
        repeats=arguments.memory_repeats,
    )
    blocks: list[str | list[str]] = []
    with waiting(len(names) * arguments.steps * (2 if python else 1), "cost") as bar:
        for name in names:
            blocks += _section(_sizes(name, arguments), python, bar)
    head = heading("torch-pruning", "trainonce")
    write_sheet(arguments.out, "Cost: training time, memory, latency", head, words, *blocks)
    return 0


def _sizes(architecture: str, arguments: argparse.Namespace) -> Sizes:
    return Sizes(
        architecture=architecture,
        num_steps=arguments.steps,
        batch_size=arguments.batch_size,
        memory_steps=arguments.memory_steps,
        memory_repeats=arguments.memory_repeats,
        latency_seconds=arguments.latency_seconds,
    )


def _section(sizes: Sizes, python: Path | None, bar: Waiting) -> list[str | list[str]]:
    name = said_architecture(sizes.architecture)
    bar.say(f"{name}: dense, ours, Torch-Pruning")
    here, trainings = measure_here(sizes, advance=bar.advance)
    bar.say(f"{name}: HESSO")
    there = MISSING if python is None else measure_there(python, sizes, advance=bar.advance)
    rows = [_cells(f"{name}, {words}", here[which], here["dense"]) for which, words in _WORDS.items()]
    if isinstance(there, str):
        rows.append((f"{name}, HESSO", there, *["-"] * (len(_HEADER) - 2)))
    else:
        rows += [
            _cells(f"{name}, {words}", there[which], there["dense"]) for which, words in _WORDS_THERE.items()
        ]
    ours = trainings["ours"]
    return [
        f"## {name}",
        table(_HEADER, rows),
        "One step, milliseconds (medians):",
        breakdown(trainings["dense"].laps, ours.laps),
        f"Shares of all of our steps' time: {shares(ours.laps)}. Once per run: attach "
        f"{ours.loop.setup_seconds:.1f} s, finish {ours.loop.finish_seconds:.1f} s; the cut itself is in a "
        "step.",
    ]


def _cells(words: str, cost: Cost, dense: Cost) -> tuple[str, ...]:
    def beside(figure: float, of_dense: float, digits: int) -> str:
        return f"{figure:.{digits}f} ({figure / of_dense:.2f})"

    return (
        words,
        beside(cost.seconds, dense.seconds, 1),
        f"{cost.once:.1f}",
        beside(cost.cpu, dense.cpu, 1),
        beside(cost.memory, dense.memory, 0),
        beside(cost.memory_above, dense.memory_above, 0),
        *(
            beside(figure, of_dense, 2)
            for figure, of_dense in zip(cost.latencies, dense.latencies, strict=True)
        ),
        f"{cost.share_of_flops:.3f}",
    )
