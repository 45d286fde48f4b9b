"""A run's report on disk.

Takes a run's folder, gives the facts in it, and writes the page and the model card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainonce.errors import ReportError
from trainonce.runs.report.card import render_card
from trainonce.runs.report.facts import REPORT, read_facts
from trainonce.runs.report.page import render_page
from trainonce.storage.atomic import write_file

PAGE, CARD = "report.html", "small/README.md"

__all__ = ["ReportError", "complete_report", "keep_report", "read_report", "write_report"]


def read_report(folder: Path) -> dict[str, Any]:
    """The facts of a finished run, or what there is of one that still trains."""
    return read_facts(folder)


def write_report(folder: Path, report: Mapping[str, Any]) -> Path:
    """Write the page, and the card beside the small model if there is one; gives the page's path."""
    write_file(folder / PAGE, render_page(report))
    if (folder / CARD).parent.is_dir():
        write_file(folder / CARD, render_card(report), within=folder)
    return folder / PAGE


def complete_report(folder: Path) -> Path:
    """Write what a run that was killed after its end could not write any more; gives the page's path."""
    is_complete = (folder / PAGE).is_file() and (
        (folder / CARD).is_file() or not (folder / CARD).parent.is_dir()
    )
    return folder / PAGE if is_complete else write_report(folder, read_report(folder))


def keep_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the facts back, if the run is finished; the file says so."""
    if (folder / REPORT).is_file():
        write_file(folder / REPORT, json.dumps(report) + "\n")
