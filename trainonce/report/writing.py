"""A run's report on disk: takes a run's folder, gives the facts in it, and writes the page and the model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainonce.report.card import render_card
from trainonce.report.page import render_page
from trainonce.sealing import write_file

REPORT, PAGE, CARD = "report.json", "report.html", "small/README.md"


class NoReport(ValueError):
    """A folder without a run, or with one that has not come to its first epoch."""


def read_report(folder: Path) -> dict[str, Any]:
    """The facts of a finished run, or what there is of one that still trains."""
    try:
        if (folder / REPORT).is_file():
            return _read_json(folder / REPORT)
        if not (folder / "config.yaml").is_file():
            raise NoReport(f"there is no run in {folder}. Give the folder that trainonce train wrote, which holds config.yaml.")
        text = (folder / "metrics.jsonl").read_text(encoding="utf-8") if (folder / "metrics.jsonl").is_file() else ""
        # A full disk may have cut the last line short; the run writes it again when there is room.
        history = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        if not history:
            raise NoReport(f"the run in {folder} has not finished its first epoch. Wait, or go on with trainonce train --resume {folder}.")
        return {
            "version": 1,
            "history": history,
            "config": yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")),
            "environment": _read_json(folder / "env.json"),
            "before": None,
            "after": {name: history[-1][name] for name in ("top1", "top5", "validation_loss")},
            "agreement": None,
            "layers": [],
            "schedule": None,
            "seconds": history[-1]["seconds"],
        }
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError, yaml.YAMLError) as error:
        raise NoReport(f"the files in {folder} are damaged ({' '.join(str(error).split())[:120]}). Train again.") from None


def write_report(folder: Path, report: Mapping[str, Any]) -> Path:
    """Write the page, and the card beside the small model if there is one; gives the page's path."""
    write_file(folder / PAGE, render_page(report))
    if (folder / CARD).parent.is_dir():
        write_file(folder / CARD, render_card(report))
    return folder / PAGE


def complete_report(folder: Path) -> Path:
    """Write what a run that was killed after its end could not write any more; gives the page's path."""
    is_complete = (folder / PAGE).is_file() and ((folder / CARD).is_file() or not (folder / CARD).parent.is_dir())
    return folder / PAGE if is_complete else write_report(folder, read_report(folder))


def keep_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the facts back, if the run is finished; the file says so."""
    if (folder / REPORT).is_file():
        write_file(folder / REPORT, json.dumps(report) + "\n")


def _read_json(file: Path) -> dict[str, Any]:
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise NoReport(f"{file} holds no report. Train again.")
    return found
