"""`python -m benchmarks accuracy`: all contenders, budgets and seeds.

Writes `benchmarks/results/accuracy.md` and a figure beside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.peers.hesso import python_of_peer
from benchmarks.sheets.options import add_hesso_python, add_several
from benchmarks.sheets.plots import DotPanel, write_dots
from benchmarks.sheets.sheet import RESULTS, figure_lines, write_sheet
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.options import DEPTH, add_run_options
from benchmarks.training.runs import run_and_record
from benchmarks.training.summary import Rows, ranked_accuracies, summarise

INTRODUCTION = """\
ResNet-{depth}, {images}{num_images}, {epochs} epochs in all for everyone, batches of {batch}, SGD with
momentum 0.9 and weight decay 1e-4, one cosine from 0.1 after a short warm-up, shifted and mirrored images;
the same batches in the same order for everyone with the same seed. The accuracy is that of the last epoch
on the whole test set, after the cut; no run or epoch is chosen by it. But our defaults were developed on
CIFAR-10, and accuracies were seen: the schedule and the controller with runs of seeds 0 and 1; that streams
stay wide and widths are rounded finely, with ResNet-20 and 4 epochs of all of it, on seeds 3 and 4, which
are not in this table (how finely, a sixteenth of a layer, lies between two that were tried there). What the
peers have is said below.

- *spread*: smallest and largest of the seeds, and their standard deviation.
- *to dense*, *ours ahead*: points, over the seeds that both have (each one).
- *training loss*: mean over the last epoch, on the augmented training images, of which there are more than
  test images: less noisy.
- *FLOPs*, *parameters*: share of the dense model's, counted by torch; *equal FLOPs*: within 1 % of what was
  asked for, in every run.
- *ours* also calls the model on images held for the controller: a batch in 10 steps of the search, from a
  fixed 5 % of the training images, which everyone trains on. *The paper's constants*: lambda = 10, one cut
  at half-time, one update in 20 steps; few in so short a run.
- *policy*: our schedule, budget, cut and pull after the decision, and another way to choose. OTO and OTOv2
  have their half-space operator, and OTO its package's lambda; filter norm, FPGM, Taylor and random pull
  nothing before the decision, where ours pulls gently.
- *from scratch*: the shape that our defaults found with the same seed, weights drawn anew, trained as long.
- *Torch-Pruning* trains for half of the epochs, prunes every layer by the same ratio as its README does,
  and fine-tunes for the rest under the common cosine. Its benchmark for CIFAR has a cosine for each half,
  the second a tenth as high, and ranks all layers together: these are had with `--contender`, also its
  regulariser (with two cosines), and pruning between our two cuts; each differs in one thing.
- *HESSO* prunes from 10 % to 25 % of the run, as the tutorial of its authors advises. It takes a share of
  groups; the number that gives the FLOPs is searched for beforehand, on the same data, at no cost to it.
  Where one group more or less jumps over them, it gets more FLOPs.
- Runs are of several machines of one kind. The same run on another machine may round differently, which
  changes it as another seed does.
- How long things take is another table's matter: `python -m benchmarks training_time`.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_several(parser, "--contender", "by name", choices=CONTENDERS, shown="the main ones")
    add_hesso_python(parser)
    add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing and write the table of all that is there."""
    if arguments.out == sheet_of(DEPTH):
        arguments.out = sheet_of(arguments.depth)
    names = arguments.contender or [name for name, entry in CONTENDERS.items() if not entry.is_extra]
    needs_peer = not arguments.table_only and any(CONTENDERS[name].needs_peer_python for name in names)
    peer_python = python_of_peer(arguments.hesso_python) if needs_peer else None
    rows, failures, head = run_and_record(names, arguments, INTRODUCTION, peer_python=peer_python)
    tables = summarise(rows, failures, arguments.seeds)
    write_sheet(
        arguments.out,
        "Accuracy at equal FLOPs and equal epochs",
        *head,
        _figure(arguments.out, rows),
        *tables,
    )
    return 1 if failures else 0


def sheet_of(depth: int) -> Path:
    """Each depth has a sheet of its own, so that the command over it never writes another."""
    return RESULTS / ("accuracy.md" if depth == DEPTH else f"accuracy{depth}.md")


def _figure(sheet: Path, rows: Rows) -> str:
    """Draw every run; gives the line that shows it, nothing if there is nothing to compare yet."""
    panels = [
        DotPanel(
            f"keep_flops = {keep:g}",
            "accuracy, % (a dot a seed, a bar the mean)",
            accuracies,
            marked=CONTENDERS["ours"].words,
        )
        for keep, accuracies in ranked_accuracies(rows).items()
        if any(accuracies.values())
    ]
    if not panels:
        return ""
    figure, title = sheet.with_suffix("") / "accuracy.png", "Accuracy at equal FLOPs and equal epochs"
    write_dots(figure, panels, title=f"{title}; in brackets the number of seeds")
    return figure_lines("accuracy of all contenders", figure)
