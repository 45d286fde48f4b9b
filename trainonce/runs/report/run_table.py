"""A run's outcome as a table for the terminal: takes the facts of a run, gives something that rich prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.figures import figures_of
from trainonce.runs.report.table import as_title


def as_run_table(report: Mapping[str, Any]) -> RenderableType:
    """Before, after and change, and whether the small model says what the large one did."""
    config = report["config"]
    table = Table(
        title=as_title(f"{config.get('model', 'model')} on {config.get('data', 'data')}"),
        title_justify="left",
    )
    table.add_column("")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for figure in figures_of(report):
        table.add_row(
            figure.label, figure.before or "-", Text(figure.after, style="bold"), figure.change or "-"
        )
    return Group(table, *(Text(line) for line in verdict(report)))


def verdict(report: Mapping[str, Any]) -> list[str]:
    """What holds about the run, in sentences."""
    lines = []
    agreement = report.get("agreement")
    if agreement and agreement.get("num_samples") is not None:
        difference = agreement.get("largest_difference")
        lines.append(
            f"cut = uncut: {_counted(agreement)}, largest difference "
            f"{f'{difference:.1e}' if difference else '0'}"
        )
    if report.get("before") is None:
        lines.append(
            f"the run is not finished: epoch {len(report['history'])} of "
            f"{in_one_line(report['config'].get('epochs', '?'), 20)}"
        )
    if report.get("num_skipped"):
        lines.append(f"{report['num_skipped']} steps were skipped: their loss or gradients were not finite")
    lines += [f"without {part}: {reason}" for part, reason in (report.get("missing") or {}).items()]
    return lines


def _counted(agreement: Mapping[str, Any]) -> str:
    """On how many samples, or parts of samples, both models say the same class, if they say classes."""
    samples = f"{agreement['num_samples']} validation samples"
    same, unit, compared = (
        agreement.get("num_same"),
        agreement.get("unit", "samples"),
        agreement.get("num_compared"),
    )
    if same is None or (unit != "samples" and compared is None):
        return f"outputs compared on {samples}"
    if unit == "samples":
        return f"same class on {same} of {samples}"
    return f"same class on {same} of {compared} {unit} of {samples}"
