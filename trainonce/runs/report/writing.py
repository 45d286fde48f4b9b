"""A run's report on disk: takes a run's folder, writes its page and its model card."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainonce.runs.file_names import CARD, PAGE, REPORT
from trainonce.runs.report.card import render_card
from trainonce.runs.report.comparison_page import render_comparison
from trainonce.runs.report.facts import baseline_of, read_facts
from trainonce.runs.report.outline import Report
from trainonce.runs.report.page import render_page
from trainonce.storage.atomic import write_file


def read_report(folder: Path, *, baseline: Path | None = None) -> dict[str, Any]:
    """The facts of a finished run, or what there is of one that still trains; with those of a dense run."""
    report = read_facts(folder)
    if baseline is not None:
        report["baseline"] = baseline_of(read_facts(baseline))
    return report


def write_report(folder: Path, report: Report) -> Path:
    """Write the page, and the card beside the small model if there is one; gives the page's path."""
    write_file(folder / PAGE, render_page(report))
    if (folder / CARD).parent.is_dir():
        write_file(folder / CARD, render_card(report), within=folder)
    return folder / PAGE


def complete_report(folder: Path) -> Path:
    """Write what a run that was killed after its end could not write any more; gives the page's path."""
    has_card = (folder / CARD).is_file() or not (folder / CARD).parent.is_dir()
    if (folder / PAGE).is_file() and has_card:
        return folder / PAGE
    return write_report(folder, read_report(folder))


def keep_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the facts back, if the run is finished; the file says so."""
    if (folder / REPORT).is_file():
        write_file(folder / REPORT, json.dumps(report) + "\n")


def write_comparison(file: Path, folders: Sequence[Path], reports: Sequence[Report]) -> Path:
    """Write the page of several runs, which links to their own pages; gives its path."""
    names = distinct_names(folders)
    links = [_link(folder / PAGE, file.parent) for folder in folders]
    write_file(file, render_comparison(list(zip(names, reports, strict=True)), links))
    return file


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of the folders above as it takes to tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    depth = 1
    while depth < max(map(len, parts)) and len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(part[-depth:]).replace("//", "/") for part in parts]


def _link(page: Path, start: Path) -> str:
    """A relative address; an absolute one where there is none, as between drives."""
    try:
        return quote(os.path.relpath(page.resolve(), start.resolve()).replace(os.sep, "/"))
    except ValueError:
        return page.resolve().as_uri()
