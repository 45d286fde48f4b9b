"""`python -m benchmarks accuracy --regime NAME`: all contenders, budgets and seeds of a regime.

Writes `benchmarks/results/accuracy_NAME.md`, the runs beside it and a figure.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.hesso import python_of_peer
from benchmarks.sheets.options import add_hesso_python, add_several
from benchmarks.sheets.plots import DotPanel, write_dots
from benchmarks.sheets.sheet import RESULTS, figure_lines, write_sheet
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration
from benchmarks.training.options import add_run_options, configurations, take_from
from benchmarks.training.regimes import REGIMES, Regime, introduction
from benchmarks.training.runs import run_and_record
from benchmarks.training.summary import Rows, ranked_scores, summarise


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    words = "; ".join(f"{name}: {regime.title}" for name, regime in REGIMES.items())
    parser.add_argument("--regime", choices=REGIMES, default="scratch", help=f"{words} (default: scratch)")
    add_several(parser, "--contender", "by name", choices=CONTENDERS, shown="the regime's")
    add_hesso_python(parser)
    add_run_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing and write the table of all that is there."""
    regime = REGIMES[arguments.regime]
    take_from(regime, arguments)
    if arguments.out == RESULTS / "accuracy.md":
        arguments.out = sheet_of(arguments)
    wanted = configurations(arguments, regime, arguments.contender)
    needs_peer = not arguments.table_only and any(
        CONTENDERS[one.contender].needs_peer_python for one in wanted
    )
    peer_python = python_of_peer(arguments.hesso_python) if needs_peer else None
    rows, failures, head = run_and_record(wanted, arguments, introduction(regime), peer_python=peer_python)
    tables = summarise(rows, failures, arguments.seeds, regime)
    write_sheet(arguments.out, regime.title, *head, _figure(arguments.out, rows, regime), *tables)
    _commit_weights(wanted, arguments.out.parent)
    return 1 if failures else 0


def sheet_of(arguments: argparse.Namespace) -> Path:
    """Each regime and depth has a sheet of its own, and so has what settings were tuned on."""
    regime = REGIMES[arguments.regime]
    parts = (
        "" if arguments.regime == "short" else f"_{arguments.regime}",
        "" if arguments.depth == regime.depth else str(arguments.depth),
        "_validation" if arguments.for_validation else "",
        f"_{Path(arguments.data).name.removesuffix('.tar.gz')}"
        if regime.num_images and arguments.data
        else "",
    )
    return RESULTS / f"accuracy{''.join(parts)}.md"


def _commit_weights(wanted: Sequence[Configuration], place: Path) -> None:
    """Put the dense weights that runs began with beside the sheet, so that a clone begins with the same."""
    for dense in {one.name: one for run in wanted for one in run.needed}.values():
        copy = place / "weights" / dense.weights_file.name
        if dense.weights_file.exists() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(dense.weights_file, copy)


def _figure(sheet: Path, rows: Rows, regime: Regime) -> str:
    """Draw every run; gives the line that shows it, nothing if there is nothing to compare yet."""
    panels = [
        DotPanel(
            f"keep_flops = {keep:g}",
            f"{regime.measure.words} (a dot a seed, a bar the mean)",
            scores,
            marked=CONTENDERS["ours"].words,
        )
        for keep, scores in ranked_scores(rows, regime.measure).items()
        if any(scores.values())
    ]
    if not panels:
        return ""
    figure = sheet.with_suffix("") / "accuracy.png"
    write_dots(figure, panels, title=f"{regime.title}; in brackets the number of seeds")
    return figure_lines("scores of all contenders", figure)
