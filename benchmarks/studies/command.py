"""`python -m benchmarks studies`: the paper's studies.

Writes `benchmarks/results/studies.md`, and figures and data beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.options import add_run_options, configurations, said_seeds, said_sizes
from benchmarks.accuracy.runs import run_and_record
from benchmarks.accuracy.summary import Results, lead_of, said, said_failure, said_origin, said_spread
from benchmarks.images import load_images
from benchmarks.plots import Panel, write_png
from benchmarks.sheet import RESULTS, heading_of_runs, table, write_sheet
from benchmarks.studies.catalogue import STUDIES, Study
from benchmarks.studies.curves import ACCURACY, REGULARISER, Curve, curves_of, write_curves

_HEADER = (
    "variant",
    "accuracy, %",
    "spread",
    "seeds",
    "to the defaults",
    "training loss",
    "FLOPs",
    "masks",
    "dropped once",
    "came back",
    "dead",
    "remark",
)

_INTRODUCTION = """\
ResNet-{depth}, {images}{num_images}, {epochs} epochs, batches of {batch}, recipe and batches as in `python -m benchmarks accuracy`. The
paper has ResNet-56, 300 epochs and p = 0.45 and 0.35: what is steep there may be flat here, and the other way round. Every row is our
defaults but for what it and its heading name; the budget is met whatever is varied, because the decision keeps it.

- *accuracy*: of the last epoch on the whole test set, after the cut; *spread*: over the seeds that have been run.
- *to the defaults*: in points, over the seeds that both have (each of them); less than the spread says nothing.
- *training loss*: mean over the last epoch, on the augmented training images: less noisy than the accuracy.
- *dropped once*, *came back*: units (channels) that the masks dropped at some update, and how many of these are in the small model.
- *masks*: FLOPs that the masks without noise kept at the last update of the search; *dead*: filters in the small model that are all zero.
- Figures, as the paper's 3 and 4: accuracy by epoch, of the model with the masks in force (hence the fall where the search begins), and
  the regulariser log(max(P(w), p P) / p P) of the masks without noise, divided by log(1 / p). Line: mean of the seeds; band: all of them.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument(
        "--study", choices=STUDIES, action="append", default=[], help="only this one; may be given again"
    )
    add_run_options(parser)
    parser.add_argument("--out", type=Path, default=RESULTS / "studies.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing; write the tables, figures and data of all that is there."""
    images = load_images(arguments.data)
    studies = {name: STUDIES[name] for name in arguments.study or STUDIES}
    wanted = configurations(
        arguments, dict.fromkeys(name for study in studies.values() for name in study.contenders), images
    )
    rows, failures = run_and_record(wanted, arguments)
    words = _INTRODUCTION.format(**said_sizes(arguments, images))
    found = [result for results in rows.values() for result in results]
    lines = [
        "# The paper's studies, and more",
        "",
        *heading_of_runs(found, seeds=said_seeds(arguments)),
        "",
        words,
    ]
    for name, study in studies.items():
        lines += [
            f"## {study.title}",
            "",
            study.words,
            "",
            *_sections(name, study, rows, failures, arguments),
        ]
    write_sheet(arguments.out, lines)
    return 1 if failures else 0


def _sections(
    name: str,
    study: Study,
    rows: Mapping[tuple[str, float], Results],
    failures: Mapping[str, str],
    arguments: argparse.Namespace,
) -> list[str]:
    folder, lines = arguments.out.with_suffix(""), []
    for keep in sorted({keep for _, keep in rows if keep < 1}, reverse=True):
        results = {
            which: rows[which, keep if CONTENDERS[which].prunes else 1.0] for which in study.contenders
        }
        lines += [f"### keep_flops = {keep:g}: {name}", ""]
        lines += [
            *table(
                _HEADER, [_cells(which, results, arguments.seeds, failures) for which in study.contenders]
            ),
            "",
        ]
        curves = curves_of(results)
        # One alone compares nothing.
        if len({curve.contender for curve in curves}) > 1:
            figure = folder / f"{name}-keep{keep:g}.png"
            write_curves(figure.with_suffix(".csv"), curves)
            write_png(figure, _panels(curves, results), title=f"{study.title}, keep_flops = {keep:g}")
            lines += [
                f"![{study.title}]({folder.name}/{figure.name}) ([data]({folder.name}/{figure.stem}.csv))",
                "",
            ]
    return lines


def _cells(
    name: str, results: Mapping[str, Results], num_seeds: int, failures: Mapping[str, str]
) -> tuple[str, ...]:
    runs, words = results[name], CONTENDERS[name].words
    if not runs:
        return words, "-", "-", f"0 of {num_seeds}", *"-------", said_failure(name, failures)
    accuracies = [run["accuracy"] for run in runs]
    return (
        words,
        f"{mean(accuracies):.2f}",
        said_spread(accuracies),
        f"{len(runs)} of {num_seeds}",
        "-" if name == "defaults" else said(lead_of(runs, results["defaults"])),
        f"{mean(run['log'][-1]['loss'] for run in runs):.3f}",
        f"{mean(run['share_of_flops'] for run in runs):.3f}",
        f"{mean(run['masks_keep'] for run in runs):.3f}" if runs[0].get("masks_keep") is not None else "-",
        *(
            f"{mean(run[key] for run in runs):.0f}" if key in runs[0] else "-"
            for key in ("num_dropped_once", "num_came_back", "num_dead")
        ),
        said_origin(name, runs),
    )


def _panels(curves: list[Curve], results: Mapping[str, Results]) -> list[Panel]:
    panels = []
    for quantity in (ACCURACY, REGULARISER):
        lines = {
            CONTENDERS[name].words: [
                curve.points for curve in curves if (curve.contender, curve.quantity) == (name, quantity)
            ]
            for name in results
        }
        panels.append(Panel("epoch", quantity, {name: runs for name, runs in lines.items() if runs}))
    return panels
