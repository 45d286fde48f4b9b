"""Line plots and rows of dots as PNG: takes panels, gives one picture with the panels side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_COLOURS = ("#222222", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which the colour-blind can tell apart; the first is for what is compared with."""

_PLAIN, _MARKED = _COLOURS[:2]
"""For pictures in which one thing stands out."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    A line may have several runs: their mean is drawn where all have a point, over a band from least to most.
    """

    x_name: str
    y_name: str
    lines: Mapping[str, Sequence[Points]]
    is_log: bool = False


def write_png(path: Path, panels: Sequence[Panel], *, title: str) -> None:
    """Draw the panels; a legend names the lines once."""
    figure = Figure(figsize=(5.2 * len(panels), 4.2), layout="constrained")
    figure.suptitle(title, fontsize=11)
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colour_of = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set(xlabel=panel.x_name, ylabel=panel.y_name)
        axes.grid(alpha=0.3)
        if panel.is_log:
            axes.set(xscale="log", yscale="log")
        for name, runs in panel.lines.items():
            x, low, middle, high = _band(runs)
            axes.plot(
                x,
                middle,
                color=colour_of[name],
                label=name,
                marker="o" if panel.is_log else None,
                markersize=3,
                linewidth=1.3,
            )
            if len(runs) > 1:
                axes.fill_between(x, low, high, color=colour_of[name], alpha=0.15, linewidth=0)
    handles = {
        text: line
        for axes in figure.axes
        for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(3, max(1, len(handles))),
        fontsize=8,
    )
    save_png(figure, path)


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure without the date and the version that the file would carry.

    The same data give the same bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _band(runs: Sequence[Points]) -> tuple[list[float], list[float], list[float], list[float]]:
    values = [dict(points) for points in runs]
    x = sorted(set.intersection(*(set(found) for found in values)))
    rows = [[found[place] for found in values] for place in x]
    return x, [min(row) for row in rows], [mean(row) for row in rows], [max(row) for row in rows]


@dataclass(frozen=True, slots=True)
class DotPanel:
    """One pair of axes; the rows stand from top to bottom as they come."""

    title: str
    x_name: str
    rows: Mapping[str, Sequence[float]]
    marked: str
    """The row that stands out."""


def write_dots(path: Path, panels: Sequence[DotPanel], *, title: str) -> None:
    """Draw the panels side by side; rows without a number are left out."""
    longest = max(sum(map(bool, panel.rows.values())) for panel in panels)
    figure = Figure(figsize=(6.4 * len(panels), 1.4 + 0.3 * longest), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, panel)
    save_png(figure, path)


def _draw(axes: Axes, panel: DotPanel) -> None:
    rows = {name: numbers for name, numbers in panel.rows.items() if numbers}
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x_name)
    axes.set_yticks(
        range(len(rows)), [f"{name} ({len(numbers)})" for name, numbers in rows.items()], fontsize=8
    )
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    for place, (name, numbers) in enumerate(rows.items()):
        colour = _MARKED if name == panel.marked else _PLAIN
        axes.plot(
            numbers, [place] * len(numbers), "o", color=colour, markersize=5, alpha=0.55, markeredgewidth=0
        )
        axes.plot([mean(numbers)], [place], "|", color=colour, markersize=15, markeredgewidth=2)
