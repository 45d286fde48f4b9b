"""What all benchmarks of many trainings are asked for.

Takes a command line, gives the configurations to run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from benchmarks.harness.images import has_images
from benchmarks.harness.task import Task
from benchmarks.sheets.options import add_data, add_number, add_several
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration
from benchmarks.training.regimes import Regime

DEPTH = 20


def add_run_options(parser: argparse.ArgumentParser, regime: Regime | None = None) -> None:
    """The data, the sizes, and how many run at a time; None where the regime says it."""
    add_data(parser)
    add_several(parser, "--keep", "budget", type=float, shown="the regime's")
    for option, words in (
        ("--seeds", "how many"),
        ("--epochs", ""),
        ("--depth", "of the ResNet"),
        ("--batch-size", ""),
    ):
        name = option.removeprefix("--").replace("-", "_")
        default = None if regime is None else getattr(regime, name)
        shown = "(default: the regime's)" if default is None else f"(default: {default})"
        parser.add_argument(option, type=int, default=default, metavar="N", help=f"{words} {shown}".strip())
    parser.add_argument("--images", type=int, metavar="N", help="train on so many images only (default: all)")
    add_number(parser, "--workers", 1, "runs at the same time")
    add_number(parser, "--threads", 1, "of each run")
    for option, words in (
        ("--for-validation", "test on a tenth of the training images, as one must to tune settings"),
        ("--keep-cache", "also use results of older code; the table marks them"),
        ("--afresh", "also run here what is recorded beside the sheet"),
        ("--table-only", "run nothing; write the table of what has been run"),
    ):
        parser.add_argument(option, action="store_true", help=words)


def take_from(regime: Regime, arguments: argparse.Namespace) -> None:
    """Fill in what was not said."""
    if regime.is_sieve and arguments.images is None and regime.task == "images":
        arguments.images = regime.num_images
    for name in ("seeds", "epochs", "depth", "batch_size"):
        if getattr(arguments, name) is None:
            setattr(arguments, name, getattr(regime, name))


def configurations(
    arguments: argparse.Namespace, regime: Regime, names: Iterable[str] = ()
) -> list[Configuration]:
    """A run for each seed, contender and budget, seed by seed: the table is whole early.

    The regime's contenders, each at its budgets; or these names, at all budgets.
    """
    budgets = [keep for keep in regime.contenders if keep < 1]
    who = {keep: tuple(names) for keep in arguments.keep or budgets} | {1.0: tuple(names)}
    wanted = dict(
        who
        if names
        else {
            keep: found
            for keep, found in regime.contenders.items()
            if keep == 1 or keep in (arguments.keep or budgets)
        }
    )
    pairs = [
        (name, keep)
        for keep in sorted(wanted, reverse=True)
        for name in wanted[keep]
        if CONTENDERS[name].prunes == (keep < 1)
    ]
    return [
        _configuration(arguments, regime, name, keep, seed)
        for seed in range(regime.first_seed, regime.first_seed + arguments.seeds)
        for name, keep in pairs
    ]


def _configuration(
    arguments: argparse.Namespace, regime: Regime, name: str, keep: float, seed: int
) -> Configuration:
    is_image = regime.task == "images"
    found = Configuration(
        contender=name,
        keep_flops=keep,
        seed=seed,
        depth=arguments.depth,
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        num_images=arguments.images,
        data=arguments.data if is_image and has_images(arguments.data) else None,
        task=regime.task,
        recipe=regime.recipe,
        start_epochs=regime.start_epochs if keep < 1 else None,
        teacher_epochs=regime.teacher_epochs if CONTENDERS[name].is_taught else None,
        for_validation=arguments.for_validation or regime.is_sieve,
        is_halved=regime.is_sieve and is_image,
    )
    # The dense model of a regime that begins with one is that one.
    return found.dense_of(regime.start_epochs) if keep == 1 and regime.start_epochs else found


def said_seeds(wanted: Iterable[Configuration]) -> str:
    """For the heading."""
    seeds = {one.seed for one in wanted}
    return f"seeds {min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"seed {min(seeds)}"


def said_sizes(arguments: argparse.Namespace, task: Task) -> dict[str, object]:
    """For the introduction: what was trained, on what, for how long."""
    return {
        "depth": arguments.depth,
        "images": task.data_name,
        "num_images": f", {arguments.images} of them to train on" if arguments.images else "",
        "epochs": arguments.epochs,
        "batch": arguments.batch_size,
    }
