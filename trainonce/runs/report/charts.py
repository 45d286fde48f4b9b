"""Curves as SVG: takes series of numbers over epochs, gives a picture that follows the page's theme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 420, 236
RIGHT, TOP, BOTTOM = 12, 24, 36
LETTER = 7.8
"""Width of a digit of the labels where they are largest, on a narrow page."""
MARK_RADIUS = 6.5


@dataclass(frozen=True, slots=True)
class Series:
    """One curve; None is a gap."""

    label: str
    values: Sequence[float | None]
    style: str
    """A class of the page's style sheet that gives the color."""


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


@dataclass(frozen=True, slots=True)
class Course:
    """What all charts of a run share: its phases, and the epochs at which the model was cut."""

    spans: Sequence[Span] = ()
    cuts: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """Where values lie in a picture."""

    left: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        """From the left edge."""
        return self.left + (WIDTH - self.left - RIGHT) * (value - self.x_low) / (self.x_high - self.x_low)

    def y(self, value: float) -> float:
        """From the upper edge."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.y_high - value) / (self.y_high - self.y_low)


def line_chart(
    title: str,
    series: Sequence[Series],
    course: Course | None = None,
    *,
    levels: Sequence[Level] = (),
    unit: str = "",
    skips_start: bool = False,
    holds: Sequence[float] = (),
) -> Markup:
    """Curves over epochs, with phases shaded and cuts marked; empty if there is nothing to draw.

    With `skips_start`, the wild first tenth of a long run may lie outside of the frame, where its curves are
    clipped. The values in `holds` lie inside it in any case.
    """
    course = course or Course()
    epochs = max((len(one.values) for one in series), default=0)
    known = (
        _worth_showing(series, epochs if skips_start else 0) + [level.value for level in levels] + [*holds]
    )
    if len(known) == len(levels) + len(holds):
        return Markup("")
    low, high, ticks = nice_range(min(known), max(known))
    labels = {tick: f"{round(tick, 10):g}{unit}" for tick in ticks}
    frame = Frame(10 + LETTER * max(map(len, labels.values())), 0, epochs, low, high)
    clip = "frame-" + "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    parts = [_clip(clip, frame), *_shades(course.spans, frame), *value_axis(labels, frame)]
    parts += _epoch_axis(epochs, frame)
    parts += [_level(level, frame) for level in levels]
    parts.append(Markup('<g clip-path="url(#{})">').format(clip))
    parts += [_curve(one, frame, unit) for one in series]
    parts.append(Markup("</g>"))
    parts += _cut_marks(course.cuts, frame)
    keys = [(one.style, one.label) for one in series if len(series) > 1]
    keys += [("compared", level.label) for level in levels]
    return figure(title, parts, keys)


def figure(title: str, parts: Sequence[Markup], keys: Sequence[tuple[str, str]] = ()) -> Markup:
    """A picture under its title, with the meaning of its colors beside that."""
    legend = Markup("").join(Markup('<span class="key {}">{}</span>').format(*key) for key in keys)
    return Markup(
        '<figure><figcaption>{}<span class="keys">{}</span></figcaption>'
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg></figure>'
    ).format(title, legend, WIDTH, HEIGHT, title, Markup("").join(parts))


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


def value_axis(labels: Mapping[float, str], frame: Frame) -> list[Markup]:
    """A line and a label for each of these values."""
    parts = []
    for tick, label in labels.items():
        y = frame.y(tick)
        parts.append(
            Markup('<line class="grid" x1="{:.1f}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                frame.left, WIDTH - RIGHT, y, y
            )
        )
        parts.append(tick_label(frame.left - 6, y + 3.5, label, anchor="end"))
    return parts


def tick_label(x: float, y: float, label: str, *, anchor: str = "middle") -> Markup:
    """A small text at an axis."""
    return Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        x, y, anchor, label
    )


def _worth_showing(series: Sequence[Series], epochs: int) -> list[float]:
    """The values that the range must hold: those after the first tenth of the epochs, if there are any."""
    found = [
        (epoch, value)
        for one in series
        for epoch, value in enumerate(one.values)
        if value is not None and math.isfinite(value)
    ]
    later = [value for epoch, value in found if epoch >= epochs / 10]
    return later if len(later) > 2 else [value for _, value in found]


def _clip(name: str, frame: Frame) -> Markup:
    return Markup('<clipPath id="{}"><rect x="{:.1f}" y="{}" width="{:.1f}" height="{}"/></clipPath>').format(
        name, frame.left - 3, TOP - 3, WIDTH - frame.left - RIGHT + 6, HEIGHT - TOP - BOTTOM + 6
    )


def _shades(spans: Sequence[Span], frame: Frame) -> list[Markup]:
    parts = []
    for span in spans:
        left, right = max(frame.x(0), frame.x(span.start)), min(frame.x(frame.x_high), frame.x(span.end))
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


def _epoch_axis(epochs: int, frame: Frame) -> list[Markup]:
    _, _, marks = nice_range(0, max(2, epochs))
    whole = {int(mark) for mark in marks if mark < epochs * 0.95 and mark == int(mark)}
    parts = [tick_label(frame.x(mark), HEIGHT - BOTTOM + 14, str(mark)) for mark in sorted({*whole, epochs})]
    return [*parts, tick_label(WIDTH - RIGHT, HEIGHT - 3, "epoch", anchor="end")]


def _level(level: Level, frame: Frame) -> Markup:
    y = frame.y(level.value)
    return Markup('<line class="level" x1="{:.1f}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
        frame.left, WIDTH - RIGHT, y, y
    )


def _cut_marks(cuts: Sequence[float], frame: Frame) -> list[Markup]:
    """A line at each cut, with its number in a circle."""
    parts, last = [], -math.inf
    for number, epoch in enumerate(cuts, start=1):
        x = min(max(frame.x(epoch), frame.left), WIDTH - RIGHT)
        # Two cuts close to each other: the second number goes below the first.
        y = TOP + MARK_RADIUS + 3 + (2 * MARK_RADIUS + 3 if x - last < 2.5 * MARK_RADIUS else 0)
        last = x
        parts.append(
            Markup(
                '<g class="cut"><title>cut {} at epoch {:.1f}</title>'
                '<line x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/><circle cx="{:.1f}" cy="{:.1f}" r="{}"/>'
                '<text x="{:.1f}" y="{:.1f}">{}</text></g>'
            ).format(number, epoch, x, x, TOP, HEIGHT - BOTTOM, x, y, MARK_RADIUS, x, y + 3.2, number)
        )
    return parts


def _curve(one: Series, frame: Frame, unit: str) -> Markup:
    points = [
        (epoch, value)
        for epoch, value in enumerate(one.values, start=1)
        if value is not None and math.isfinite(value)
    ]
    if not points:
        return Markup("")
    path = " ".join(
        f"{'L' if index else 'M'}{frame.x(epoch):.1f} {frame.y(value):.1f}"
        for index, (epoch, value) in enumerate(points)
    )
    epoch, value = points[-1]
    return Markup(
        '<path class="curve {}" d="{}"><title>{}</title></path>'
        '<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>'
    ).format(
        one.style,
        path,
        one.label,
        one.style,
        frame.x(epoch),
        frame.y(value),
        f"{one.label}, epoch {epoch}: {value:.4g}{unit}",
    )
