"""What all benchmarks of many trainings are asked for.

Takes a command line, gives the configurations to run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from benchmarks.harness.images import Images
from benchmarks.sheets.options import add_data, add_number, add_several
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration

BUDGETS = [0.5, 0.3]
DEPTH = 20


def add_run_options(parser: argparse.ArgumentParser, *, epochs: int = 15) -> None:
    """The data, the sizes, and how many run at a time."""
    add_data(parser)
    add_several(parser, "--keep", "budget", type=float, shown="0.5, 0.3")
    add_number(parser, "--seeds", 3, "how many")
    add_number(parser, "--epochs", epochs)
    add_number(parser, "--depth", DEPTH, "of the ResNet", metavar=None)
    add_number(parser, "--batch-size", 128)
    parser.add_argument("--images", type=int, metavar="N", help="train on so many images only (default: all)")
    add_number(parser, "--workers", 1, "runs at the same time")
    add_number(parser, "--threads", 1, "of each run")
    for option, words in (
        ("--keep-cache", "also use results of older code; the table marks them"),
        ("--afresh", "also run here what is recorded beside the sheet"),
        ("--table-only", "run nothing; write the table of what has been run"),
    ):
        parser.add_argument(option, action="store_true", help=words)


def configurations(
    arguments: argparse.Namespace, names: Iterable[str], images: Images
) -> list[Configuration]:
    """A run for each seed, contender and budget, seed by seed: the table is whole early."""
    return [
        Configuration(
            contender=name,
            keep_flops=keep,
            seed=seed,
            depth=arguments.depth,
            epochs=arguments.epochs,
            batch_size=arguments.batch_size,
            num_images=arguments.images,
            data=None if images.name == "digits" else arguments.data,
        )
        for seed in range(arguments.seeds)
        for name in names
        for keep in (arguments.keep or BUDGETS if CONTENDERS[name].prunes else [1.0])
    ]


def said_seeds(arguments: argparse.Namespace) -> str:
    """For the heading."""
    return f"seeds 0 to {arguments.seeds - 1}" if arguments.seeds > 1 else "seed 0"


def said_sizes(arguments: argparse.Namespace, images: Images) -> dict[str, object]:
    """For the introduction: what was trained, on what, for how long."""
    return {
        "depth": arguments.depth,
        "images": images.name,
        "num_images": f", {arguments.images} of them to train on" if arguments.images else "",
        "epochs": arguments.epochs,
        "batch": arguments.batch_size,
    }
