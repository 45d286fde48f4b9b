"""`trainonce report`: takes a run's folder, writes the page and shows the table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from trainonce.cli.printing import say, show, show_json
from trainonce.runs.folder import room_in
from trainonce.runs.report.run_table import as_run_table
from trainonce.runs.report.writing import keep_report, read_report, write_report


def add_commands(commands: Any) -> None:
    """Add `report`."""
    parser = commands.add_parser(
        "report",
        help="write a run's report page and show its table",
        description=(
            "Write a run's report as one page that needs no network, and show its table. Works while the run "
            "still trains."
        ),
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="the folder that trainonce train wrote")
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        type=Path,
        help="a run of the whole model (--keep-flops 1) to compare with",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of the table")
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> None:
    report = read_report(arguments.folder)
    if arguments.baseline is not None:
        report["baseline"] = read_report(arguments.baseline).get("after")
    with room_in(arguments.folder):
        if arguments.baseline is not None:
            keep_report(arguments.folder, report)
        page = write_report(arguments.folder, report)
    if arguments.json:
        show_json(report, indent=2)
    else:
        show(as_run_table(report))
        say(f"report: {page}")
