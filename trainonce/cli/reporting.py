"""`trainonce report`: takes the folders of runs, writes their page and shows their table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from trainonce.cli.printing import say, show, show_json
from trainonce.data.identity.keeping import warn_of_other_data
from trainonce.errors import SettingError
from trainonce.runs.file_names import COMPARISON
from trainonce.runs.folder import room_in
from trainonce.runs.report.comparing import compare_runs
from trainonce.runs.report.run_table import as_comparison_table, as_run_table
from trainonce.runs.report.writing import (
    distinct_names,
    keep_report,
    read_report,
    write_comparison,
    write_report,
)

MOST_RUNS = 100


def add_commands(commands: Any) -> None:
    """Add `report`."""
    parser = commands.add_parser(
        "report",
        help="write a run's report page, or compare several runs",
        description=(
            "Write a run's report as one HTML page that needs no network, and print its table. Works while "
            "the run is still training. With several runs, also write a page that compares them."
        ),
    )
    parser.add_argument(
        "folders", metavar="RUN", type=Path, nargs="+", help="the folder that trainonce train wrote"
    )
    parser.add_argument(
        "--baseline", metavar="RUN", type=Path, help="the dense run (--keep-flops 1) to compare with"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help=f"where the page of several runs is written (default: {COMPARISON})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> None:
    folders: list[Path] = arguments.folders
    if len(folders) > MOST_RUNS:
        raise SettingError(f"{len(folders)} runs are too many for one page. Pass at most {MOST_RUNS}.")
    if len(folders) == 1 and arguments.out is not None:
        raise SettingError("--out names the comparison of several runs. Omit it, or pass several runs.")
    # All are read before anything is written.
    reports = [read_report(folder, baseline=arguments.baseline) for folder in folders]
    if arguments.baseline is not None:
        for folder in folders:
            warn_of_other_data(folder, arguments.baseline)
    pages = []
    for folder, report in zip(folders, reports, strict=True):
        with room_in(folder):
            if arguments.baseline is not None:
                keep_report(folder, report)
            pages.append(write_report(folder, report))
    if len(folders) == 1:
        if arguments.json:
            show_json(reports[0], indent=2)
        else:
            show(as_run_table(reports[0]))
            say(f"report: {pages[0]}")
        return
    file = arguments.out or Path(COMPARISON)
    with room_in(file.parent):
        write_comparison(file, folders, reports)
    if arguments.json:
        show_json(reports, indent=2)
    else:
        names = distinct_names(folders)
        show(as_comparison_table(compare_runs(list(zip(names, reports, strict=True)))))
        say(f"comparison: {file}")
