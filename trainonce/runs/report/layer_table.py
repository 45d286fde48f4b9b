"""FLOPs and milliseconds per layer on a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainonce.engines.layer_times import LayerTime
from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.table import as_title
from trainonce.structure.table import in_units


def as_layer_table(rows: Sequence[LayerTime], *, title: str, conditions: str) -> RenderableType:
    """The layers in order, each with its share of FLOPs and of milliseconds, then their sum."""
    macs, milliseconds = sum(row.macs for row in rows), sum(row.milliseconds for row in rows)
    table = Table(title=as_title(title), title_justify="left", pad_edge=False, expand=False)
    table.add_column("layer", overflow="fold", max_width=36)
    table.add_column("class", overflow="fold", max_width=18)
    for name in ("FLOPs", "%", "ms", "%"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        name = row.name or (f"{row.count} x" if row.count > 1 else "")
        table.add_row(
            Text(in_one_line(name, 200)),
            Text(in_one_line(row.kind, 80)),
            in_units(row.macs) if row.macs else "-",
            _percent(row.macs, macs) if row.macs else "-",
            f"{row.milliseconds:.3f}",
            _percent(row.milliseconds, milliseconds),
            style="" if row.macs else "dim",
        )
    table.add_section()
    table.add_row("sum", "", in_units(macs), "", f"{milliseconds:.3f}", "")
    return Group(table, Text(conditions))


def as_layer_json(rows: Sequence[LayerTime], *, model: str, engine: str, threads: int) -> str:
    """Everything the table says, as one JSON object."""
    return json.dumps(
        {"model": model, "engine": engine, "threads": threads, "layers": [asdict(row) for row in rows]}
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
