"""Curves as SVG: takes series of numbers over epochs, gives a picture whose colours follow the page's light or dark theme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 420, 236
RIGHT, TOP, BOTTOM = 12, 24, 36
LETTER = 7.8
"""Width of a digit of the labels on a narrow page, where they are largest."""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve; None is a gap."""

    label: str
    values: Sequence[float | None]
    style: str
    """A class of the page's style sheet that gives the colour."""


@dataclass(frozen=True, slots=True)
class Span:
    """A phase of the run, in epochs."""

    phase: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line to compare with, such as the budget."""

    label: str
    value: float


def line_chart(
    title: str,
    series: Sequence[Series],
    spans: Sequence[Span],
    *,
    levels: Sequence[Level] = (),
    unit: str = "",
    skips_start: bool = False,
    holds: Sequence[float] = (),
) -> Markup:
    """Curves over epochs with the phases shaded; empty if there is nothing to draw.

    With `skips_start`, the wild first tenth of a long run may lie beyond the frame, where its curves are cut
    off. What `holds` says lies inside it in any case.
    """
    epochs = max((len(one.values) for one in series), default=0)
    known = (
        _worth_showing(series, epochs if skips_start else 0) + [level.value for level in levels] + [*holds]
    )
    if len(known) == len(levels) + len(holds):
        return Markup("")
    low, high, ticks = nice_range(min(known), max(known))
    left = 10 + LETTER * max(len(_label(tick, unit)) for tick in ticks)

    def x(epoch: float) -> float:
        return left + (WIDTH - left - RIGHT) * (epoch - 1) / max(1, epochs - 1)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    parts = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            WIDTH, HEIGHT, title
        )
    ]
    frame = "frame-" + "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    parts.append(
        Markup('<clipPath id="{}"><rect x="{}" y="{}" width="{}" height="{}"/></clipPath>').format(
            frame, round(left - 3, 1), TOP - 3, round(WIDTH - left - RIGHT + 6, 1), HEIGHT - TOP - BOTTOM + 6
        )
    )
    parts += _shades(spans, epochs, x)
    parts += _axes({tick: _label(tick, unit) for tick in ticks}, y, epochs, x)
    for level in levels:
        parts.append(
            Markup('<line class="level" x1="{:.1f}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                left, WIDTH - RIGHT, *[y(level.value)] * 2
            )
        )
    parts.append(Markup('<g clip-path="url(#{})">').format(frame))
    parts += [_curve(one, x, y, unit) for one in series]
    parts.append(Markup("</g></svg>"))
    keys = [(one.style, one.label) for one in series if len(series) > 1] + [
        ("compared", level.label) for level in levels
    ]
    legend = Markup("").join(Markup('<span class="key {}">{}</span>').format(*key) for key in keys)
    return Markup('<figure><figcaption>{}<span class="keys">{}</span></figcaption>{}</figure>').format(
        title, legend, Markup("").join(parts)
    )


def _worth_showing(series: Sequence[Series], epochs: int) -> list[float]:
    """The values that the range must hold.

    Those after the first tenth of so many epochs, if there are any.
    """
    found = [
        (epoch, value)
        for one in series
        for epoch, value in enumerate(one.values)
        if value is not None and math.isfinite(value)
    ]
    later = [value for epoch, value in found if epoch >= epochs / 10]
    return later if len(later) > 2 else [value for _, value in found]


def nice_range(low: float, high: float) -> tuple[float, float, list[float]]:
    """A range with round ends that holds both numbers, and four to seven round numbers in it."""
    size = max(abs(low), abs(high))
    if high - low < max(1e-12, 1e-9 * size):
        # As good as equal: what floats can tell apart is less than the picture's own steps would be.
        margin = max(1e-12, 0.1 * size) if size else 1.0
        low, high = low - margin, high + margin
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, last * step, [index * step for index in range(first, last + 1)]


def _shades(spans: Sequence[Span], epochs: int, x) -> list[Markup]:
    parts = []
    for span in spans:
        left, right = max(x(1), x(span.start)), min(x(epochs), x(span.end))
        if right <= left:
            continue
        parts.append(
            Markup(
                '<rect class="phase {}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>'
            ).format(span.phase, left, TOP, right - left, HEIGHT - TOP - BOTTOM, span.phase)
        )
        if right - left > 9 * len(span.phase) * 0.62:
            parts.append(
                Markup('<text class="phase-name" x="{:.1f}" y="{}">{}</text>').format(
                    (left + right) / 2, TOP - 6, span.phase
                )
            )
    return parts


def _label(tick: float, unit: str) -> str:
    return f"{round(tick, 10):g}{unit}"


def _axes(ticks: Mapping[float, str], y, epochs: int, x) -> list[Markup]:
    parts, left = [], x(1)
    for tick, label in ticks.items():
        parts.append(
            Markup('<line class="grid" x1="{:.1f}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                left, WIDTH - RIGHT, y(tick), y(tick)
            )
        )
        parts.append(
            Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>').format(
                left - 6, y(tick) + 3.5, label
            )
        )
    _, _, marks = nice_range(1, max(2, epochs))
    for mark in sorted(
        {1, epochs, *(int(mark) for mark in marks if 1 < mark < epochs * 0.95 and mark == int(mark))}
    ):
        parts.append(
            Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                x(mark), HEIGHT - BOTTOM + 14, mark
            )
        )
    parts.append(
        Markup('<text class="tick" x="{}" y="{}" text-anchor="end">epoch</text>').format(
            WIDTH - RIGHT, HEIGHT - 3
        )
    )
    return parts


def _curve(one: Series, x, y, unit: str) -> Markup:
    points = [
        (epoch, value)
        for epoch, value in enumerate(one.values, start=1)
        if value is not None and math.isfinite(value)
    ]
    if not points:
        return Markup("")
    path = " ".join(
        f"{'M' if index == 0 else 'L'}{x(epoch):.1f} {y(value):.1f}"
        for index, (epoch, value) in enumerate(points)
    )
    last_epoch, last = points[-1]
    dot = Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>').format(
        one.style, x(last_epoch), y(last), f"{one.label}, epoch {last_epoch}: {last:.4g}{unit}"
    )
    return Markup('<path class="curve {}" d="{}"><title>{}</title></path>{}').format(
        one.style, path, escape(one.label), dot
    )
