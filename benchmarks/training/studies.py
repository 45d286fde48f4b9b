"""`python -m benchmarks studies`: the paper's studies.

Writes `benchmarks/results/studies.md`, and figures and data beside it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.sheets.options import add_several
from benchmarks.sheets.plots import Panel, write_png
from benchmarks.sheets.sheet import figure_lines, write_csv, write_sheet
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.measures import lead_of, said
from benchmarks.training.options import add_run_options, configurations
from benchmarks.training.questions import STUDIES, Study
from benchmarks.training.regimes import REGIMES
from benchmarks.training.runs import run_and_record
from benchmarks.training.summary import Results, result_cells, result_table

_HEADER = (
    *("variant", "accuracy, %", "spread", "seeds", "to the defaults", "training loss", "FLOPs", "masks"),
    *("dropped once", "came back", "dead", "remark"),
)

LONGER = replace(REGIMES["short"], epochs=15)

INTRODUCTION = """\
ResNet-{depth}, {images}{num_images}, {epochs} epochs, batches of {batch}, recipe and batches as in `python
-m benchmarks accuracy`. The paper has ResNet-56, 300 epochs and p = 0.45 and 0.35: what is steep there may
be flat here, and the other way round. Every row is our defaults but for what it and its heading name; the
budget is met whatever is varied, because the decision keeps it.

- *accuracy*: of the last epoch on the whole test set, after the cut; *spread*: over the seeds that have
  been run.
- *to the defaults*: in points, over the seeds that both have (each of them); less than the spread says
  nothing.
- *training loss*: mean over the last epoch, on the augmented training images: less noisy than the accuracy.
- *dropped once*, *came back*: units (channels) that the masks dropped at some update, and how many of these
  are in the small model.
- *masks*: FLOPs that the masks without noise kept at the last update of the search; *dead*: filters in the
  small model that are all zero.
- Figures, as the paper's 3 and 4: accuracy by epoch, of the model with the masks in force (hence the fall
  where the search begins), and the regulariser log(max(P(w), p P) / p P) of the masks without noise,
  divided by log(1 / p). Line: mean of the seeds; band: all of them.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_several(parser, "--study", "only this one", choices=STUDIES)
    add_run_options(parser, LONGER)


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing; write the tables, figures and data of all that is there."""
    studies = {name: STUDIES[name] for name in arguments.study or STUDIES}
    names = dict.fromkeys(name for study in studies.values() for name in study.contenders)
    rows, failures, head = run_and_record(configurations(arguments, LONGER, names), arguments, INTRODUCTION)
    blocks: list[str | list[str]] = []
    for name, study in studies.items():
        blocks += [f"## {study.title}", study.words]
        for keep in sorted({keep for _, keep in rows if keep < 1}, reverse=True):
            results = {
                which: rows[which, keep if CONTENDERS[which].prunes else 1.0] for which in study.contenders
            }
            cells = [
                result_cells(which, found, arguments.seeds, failures) | _notes(which, results)
                for which, found in results.items()
            ]
            figure = arguments.out.with_suffix("") / f"{name}-keep{keep:g}.png"
            title = f"{study.title}, keep_flops = {keep:g}"
            blocks += [f"### keep_flops = {keep:g}: {name}", result_table(_HEADER, cells)]
            blocks.append(_draw(figure, study, results, title=title))
    write_sheet(arguments.out, "The paper's studies, and more", *head, *blocks)
    return 1 if failures else 0


def _draw(figure: Path, study: Study, results: Mapping[str, Results], *, title: str) -> str:
    """Write a figure and its data; gives the line that shows it, nothing for one contender alone."""
    curves = curves_of(results)
    if len({curve.contender for curve in curves}) < 2:
        return ""
    write_csv(figure.with_suffix(".csv"), COLUMNS, (row for curve in curves for row in curve.rows()))
    write_png(figure, _panels(curves, results), title=title)
    return figure_lines(study.title, figure, has_data=True)


def _notes(name: str, results: Mapping[str, Results]) -> dict[str, str]:
    """The columns that only studies have; a contender that takes no notes has none."""
    runs = results[name]
    lead = "-" if name == "defaults" else said(lead_of(runs, results["defaults"]))
    cells = {"to the defaults": lead}
    for column, key, digits in (
        ("masks", "masks_keep", 3),
        ("dropped once", "num_dropped_once", 0),
        ("came back", "num_came_back", 0),
        ("dead", "num_dead", 0),
    ):
        if runs and runs[0].get(key) is not None:
            cells[column] = f"{mean(run[key] for run in runs):.{digits}f}"
    return cells


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


ACCURACY = "accuracy under the mask, %"
COLUMNS = ("contender", "seed", "quantity", "epoch", "value")
REGULARISER = "FLOPs regulariser, scaled to 0..1"


@dataclass(frozen=True, slots=True)
class Curve:
    """One quantity of one run."""

    contender: str
    seed: int
    quantity: str
    points: tuple[tuple[float, float], ...]
    """Epoch and value."""

    def rows(self) -> Iterator[tuple[object, ...]]:
        """One line of the data for each point."""
        for x, y in self.points:
            yield self.contender, self.seed, self.quantity, f"{x:.4g}", f"{y:.4f}"


def curves_of(results: Mapping[str, Results]) -> list[Curve]:
    """All curves of some contenders' runs."""
    return [curve for name, runs in results.items() for run in runs for curve in _of_run(name, run)]


def _of_run(name: str, run: Mapping[str, Any]) -> Iterator[Curve]:
    seed, keep = run["configuration"]["seed"], run["configuration"]["keep_flops"]
    masked = run.get("masked_accuracies") or [None] * len(run["log"])
    accuracies = [
        line["accuracy"] if under is None else under for line, under in zip(run["log"], masked, strict=True)
    ]
    yield Curve(
        name,
        seed,
        ACCURACY,
        tuple((line["epoch"], value) for line, value in zip(run["log"], accuracies, strict=True)),
    )
    if run.get("penalties"):
        # The whole model's penalty is log(1 / p): scaled by it, every budget begins at 1.
        whole = math.log(1 / keep)
        yield Curve(
            name,
            seed,
            REGULARISER,
            ((0.0, 1.0), *((epoch, value / whole) for epoch, value in run["penalties"])),
        )
