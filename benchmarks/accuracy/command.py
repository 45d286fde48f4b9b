"""`python -m benchmarks accuracy`: all contenders, budgets and seeds; writes `benchmarks/results/accuracy.md`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.options import add_run_options, configurations, said_seeds, said_sizes
from benchmarks.accuracy.runs import run_all
from benchmarks.accuracy.summary import results_by_row, summarise
from benchmarks.hesso import python_of_peer
from benchmarks.images import load_images
from benchmarks.sheet import RESULTS, heading, write_sheet

_INTRODUCTION = """\
ResNet-{depth}, {images}{num_images}, {epochs} epochs in all for everyone, batches of {batch}, SGD with momentum 0.9 and weight decay 1e-4,
one cosine from 0.1 after a short warm-up, shifted and mirrored images; the same batches in the same order for everyone with the same seed.
The accuracy is that of the last epoch on the whole test set, after the cut; nothing is chosen by it.

- *spread*: smallest and largest of the seeds, and their standard deviation; *to dense*: difference of the means, in points.
- *FLOPs*: share of the dense model's, counted by torch; *equal FLOPs*: within 1 % of what was asked for, in every run.
- *from scratch*: the shape that our defaults found with the same seed, weights drawn anew, trained as long.
- *Torch-Pruning* trains for half of the epochs, prunes every layer by the same ratio as its README does, and fine-tunes for the rest under
  the common cosine. Its other rows differ in one thing each: a cosine for each half, the second a tenth as high; pruned at 30 %,
  between our two cuts; all layers ranked together; its regulariser (with two cosines). Compare with the best.
- *HESSO* prunes from 10 % to 50 % of the run, or to 30 %. It takes a share of groups; the one that gives the FLOPs is searched for
  beforehand, on the same data, at no cost to it.
- *minutes*: of training, with {threads} thread(s) and {workers} run(s) at a time.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("--contender", choices=CONTENDERS, action="append", default=[], help="only this one; may be given again")
    parser.add_argument("--hesso-python", type=Path, metavar="FILE", help="python with only_train_once (default: that of `make hesso`)")
    add_run_options(parser)
    parser.add_argument("--out", type=Path, default=RESULTS / "accuracy.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing and write the table of all that is there."""
    # Reading the images here puts them into the cache before the children ask for them.
    images = load_images(arguments.data)
    wanted = configurations(arguments, arguments.contender or CONTENDERS, images)
    failures: dict[str, str] = {}
    if not arguments.table_only:
        needs_peer = any(CONTENDERS[configuration.contender].needs_peer_python for configuration in wanted)
        peer_python = python_of_peer(arguments.hesso_python) if needs_peer else None
        failures = run_all(
            wanted, workers=arguments.workers, threads=arguments.threads, peer_python=peer_python, accept_old=arguments.keep_cache
        )
    words = _INTRODUCTION.format(**said_sizes(arguments, images))
    write_sheet(
        arguments.out,
        [
            "# Accuracy at equal FLOPs and equal epochs",
            "",
            *heading(seeds=said_seeds(arguments), packages=("torch", "torch-pruning", "trainonce")),
            "",
            words.rstrip(),
            *summarise(results_by_row(wanted), failures, arguments.seeds),
        ],
    )
    return 1 if failures else 0
