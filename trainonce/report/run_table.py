"""A run's outcome as a table for the terminal: takes the facts of a run, gives something that rich prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainonce.report.figures import figures_of


def as_run_table(report: Mapping[str, Any]) -> RenderableType:
    """Before, after and change, and whether the small model says what the large one did."""
    config = report["config"]
    title = f"{config.get('model', 'model')} on {config.get('data', 'data')}"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for figure in figures_of(report):
        table.add_row(figure.label, figure.before or "-", Text(figure.after, style="bold"), figure.change or "-")
    return Group(table, *(Text(line) for line in verdict(report)))


def verdict(report: Mapping[str, Any]) -> list[str]:
    """What holds about the run, in sentences."""
    lines = []
    agreement = report.get("agreement")
    if agreement:
        difference = agreement["largest_difference"]
        lines.append(
            f"cut = uncut: same class on {agreement['num_same']} of {agreement['num_samples']} validation samples, "
            f"largest difference {f'{difference:.1e}' if difference else '0'}"
        )
    if report.get("before") is None:
        lines.append(f"the run is not finished: epoch {len(report['history'])} of {report['config'].get('epochs', '?')}")
    if report.get("num_skipped"):
        lines.append(f"{report['num_skipped']} steps were skipped: their loss or gradients were not finite")
    return lines
