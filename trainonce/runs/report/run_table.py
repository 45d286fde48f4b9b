"""Runs as tables for the terminal: takes the facts of one run or of several, gives what rich prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainonce.runs.report.comparing import Row
from trainonce.runs.report.figures import figures_of
from trainonce.runs.report.outline import Report, title_of
from trainonce.runs.report.table import as_title
from trainonce.runs.report.verdict import remarks_on, verdict_of


def as_run_table(report: Report) -> RenderableType:
    """Before, after and change; then the verdict, and remarks on it."""
    table = Table(title=as_title(title_of(report)), title_justify="left")
    table.add_column("")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for figure in figures_of(report):
        table.add_row(
            figure.label, figure.before or "-", Text(figure.after, style="bold"), figure.change or "-"
        )
    return Group(table, Text(verdict_of(report)), *(Text(line) for line in remarks_on(report)))


def as_comparison_table(rows: Sequence[Row]) -> RenderableType:
    """One line per run: FLOPs, accuracy, how far from dense, and speed."""
    table = Table(title=as_title(f"{len(rows)} runs"), title_justify="left")
    table.add_column("")
    table.add_column("run", overflow="fold", min_width=12)
    for name in ("FLOPs", "kept", "score", "vs dense", "speedup"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        dense = f"{row.change}{' (noise)' if row.is_noise else ''}" if row.change else "-"
        table.add_row(str(row.number), Text(row.name), row.flops, row.kept, row.score, dense, row.speedup)
    return table
