"""Runs as points: takes accuracies and FLOPs of several runs, gives accuracy over FLOPs as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from trainonce.runs.report.charts import (
    BOTTOM,
    HEIGHT,
    LETTER,
    RIGHT,
    TOP,
    WIDTH,
    Frame,
    figure,
    nice_range,
    tick_label,
    value_axis,
)
from trainonce.runs.report.comparing import Row
from trainonce.structure.table import in_units

NUM_COLORS = 8
DOT_RADIUS = 8


def color_of(row: Row) -> str:
    """The class of the style sheet that gives a run its color."""
    return f"run-{(row.number - 1) % NUM_COLORS}"


def accuracy_over_flops(rows: Sequence[Row]) -> Markup:
    """One numbered point per run, with its 95 % interval; empty if fewer than two runs have both numbers."""
    shown = [row for row in rows if row.macs is not None and row.accuracy is not None]
    if len(shown) < 2:
        return Markup("")
    heights = [value for row in shown for value in _heights(row)]
    kind = shown[0].kind
    is_share = kind.unit == "%"
    lowest, highest = (0.0, 100.0) if is_share else (-math.inf, math.inf)
    low, high, ticks = nice_range(max(lowest, min(heights)), min(highest, max(heights)))
    widest = max(row.macs or 0 for row in shown)
    x_high = widest * 1.08
    _, _, x_ticks = nice_range(0, x_high)
    labels = {tick: f"{round(tick, 10):g}{kind.unit}" for tick in ticks}
    frame = Frame(10 + LETTER * max(map(len, labels.values())), 0, x_high, low, high)
    parts = value_axis(labels, frame)
    parts += [
        tick_label(frame.x(tick), HEIGHT - BOTTOM + 14, _short(tick)) for tick in x_ticks if tick <= x_high
    ]
    parts.append(tick_label(WIDTH - RIGHT, HEIGHT - 3, "FLOPs (multiply-adds)", anchor="end"))
    parts += [_whisker(row, frame) for row in shown] + [_dot(row, frame) for row in shown]
    return figure(f"{kind.label} over FLOPs", parts)


def _heights(row: Row) -> list[float]:
    assert row.accuracy is not None
    return [row.accuracy] if row.interval is None else [row.interval.low, row.accuracy, row.interval.high]


def _short(count: float) -> str:
    """A round count without its zeros: `2.5 M`."""
    number, _, unit = in_units(count).partition(" ")
    return f"{float(number):g} {unit}".strip()


def _whisker(row: Row, frame: Frame) -> Markup:
    if row.interval is None or row.macs is None:
        return Markup("")
    x, low, high = frame.x(row.macs), frame.y(row.interval.low), frame.y(row.interval.high)
    high = max(high, float(TOP)) if math.isfinite(high) else float(TOP)
    return Markup(
        '<path class="whisker {}" d="M{:.1f} {:.1f}V{:.1f}M{:.1f} {:.1f}h8M{:.1f} {:.1f}h8"/>'
    ).format(color_of(row), x, low, high, x - 4, low, x - 4, high)


def _dot(row: Row, frame: Frame) -> Markup:
    assert row.macs is not None
    assert row.accuracy is not None
    x, y = frame.x(row.macs), frame.y(row.accuracy)
    return Markup(
        '<g class="point {}"><title>{}: {}, {}</title><circle cx="{:.1f}" cy="{:.1f}" r="{}"/>'
        '<text x="{:.1f}" y="{:.1f}">{}</text></g>'
    ).format(color_of(row), row.name, row.score, row.flops, x, y, DOT_RADIUS, x, y + 3.6, row.number)
