"""int8 beside float: takes what `export --int8` measured, gives one table for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.table import as_title
from trainonce.runs.report.uncertainty import counted

MOST_LAYERS_SHOWN = 5
POINTS_WORTH_A_WORD = 1.0
"""Fewer points lost than this are not remarked on."""


@dataclass(frozen=True, slots=True)
class Int8Table:
    """Header, one row per model, and lines to read below them."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[str]


def int8_table(found: Mapping[str, Any] | None) -> Int8Table | None:
    """The table of a report's `int8`; None if the run was never exported with --int8."""
    if not found or not found["standings"]:
        return None
    standings = found["standings"]
    sizes = list(standings[0]["milliseconds"])
    header = ["", "accuracy", *(f"ms, batch {size}" for size in sizes), "size on disk"]
    rows = []
    for standing in standings:
        top1 = standing.get("top1")
        times = [standing["milliseconds"].get(size) for size in sizes]
        rows.append(
            [
                standing["name"],
                "-" if top1 is None else f"{top1:.2f} %",
                *("-" if time is None else f"{time['low']:.3f}" for time in times),
                f"{standing['bytes'] / 1000:,.0f} kB",
            ]
        )
    return Int8Table(header, rows, [*_speeds(standings, sizes), *_remarks(found), _conditions(found)])


def as_int8_table(found: Mapping[str, Any], *, title: str) -> RenderableType:
    """The same for the terminal."""
    shown = int8_table(found)
    assert shown is not None
    table = Table(title=as_title(title), title_justify="left", box=None)
    for number, name in enumerate(shown.header):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in shown.rows:
        table.add_row(*(Text(cell) for cell in row))
    return Group(table, *(Text(line, style="dim") for line in shown.lines))


def _speeds(standings: Sequence[Mapping[str, Any]], sizes: Sequence[str]) -> list[str]:
    """How int8, which stands last, compares with the small float model before it."""
    if len(standings) < 2:
        return []
    parts = []
    for size in sizes:
        times = [standing["milliseconds"].get(size) for standing in standings[-2:]]
        if None in times or not times[0]["low"]:
            continue
        ratio = times[1]["low"] / times[0]["low"]
        parts.append(f"{ratio:.2f} of the small float model's time at batch {size}")
    if not parts:
        return []
    return [f"int8 takes {' and '.join(parts)}."]


def _remarks(found: Mapping[str, Any]) -> list[str]:
    lines = []
    small, int8 = (standing.get("top1") for standing in found["standings"][-2:])
    if small is not None and int8 is not None and small - int8 > POINTS_WORTH_A_WORD:
        lines.append(f"int8 loses {small - int8:.2f} points of accuracy. Compare before you use it.")
    if found["standings"][0].get("top1") is None:
        lines.append(
            "The accuracy of the dense model is not known: train it with --keep-flops 1, then run trainonce "
            "report RUN --baseline DENSE_RUN."
        )
    left = found.get("left_in_float") or {}
    for name, reason in list(left.items())[:MOST_LAYERS_SHOWN]:
        lines.append(f"{in_one_line(name, 80)} stays in float: {in_one_line(reason, 200)}.")
    if len(left) > MOST_LAYERS_SHOWN:
        lines.append(f"So do {len(left) - MOST_LAYERS_SHOWN} more layers.")
    return lines


def _conditions(found: Mapping[str, Any]) -> str:
    return (
        f"ONNX Runtime with {counted(found['threads'], 'thread')}, measured in turns; each time is the 10th "
        f"percentile. Accuracy is top-1 on {counted(found['num_validation'], 'validation sample')}. "
        f"{counted(found['num_layers'], 'layer')} in int8, calibrated on "
        f"{counted(found['num_calibration'], 'training sample')} ({in_one_line(found['ranges'], 80)})."
    )
