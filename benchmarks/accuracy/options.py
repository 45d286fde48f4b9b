"""What all benchmarks of many trainings are asked for.

Takes a command line, gives the configurations to run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.images import Images

BUDGETS = [0.5, 0.3]
DEPTH = 20


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The data, the sizes, and how many run at a time."""
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="a folder of images, train/CLASS/ and test/CLASS/ inside (default: digits)",
    )
    parser.add_argument(
        "--keep",
        type=float,
        action="append",
        default=[],
        help="budget; may be given again (default: 0.5, 0.3)",
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many (default: 3)")
    parser.add_argument("--epochs", type=int, default=15, metavar="N", help="(default: 15)")
    parser.add_argument("--depth", type=int, default=DEPTH, help=f"of the ResNet (default: {DEPTH})")
    parser.add_argument("--batch-size", type=int, default=128, metavar="N")
    parser.add_argument("--images", type=int, metavar="N", help="train on so many images only (default: all)")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="runs at the same time (default: 1)"
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of each run (default: 1)")
    parser.add_argument(
        "--keep-cache", action="store_true", help="also use results of older code; the table marks them"
    )
    parser.add_argument(
        "--afresh", action="store_true", help="also run here what is recorded beside the sheet"
    )
    parser.add_argument(
        "--table-only", action="store_true", help="run nothing; write the table of what has been run"
    )


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
