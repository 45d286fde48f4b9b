"""Rows of dots as PNG.

Takes named rows of numbers, gives one picture in which each number is a dot and each mean a bar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.plots import MARKED, PLAIN, save_png


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
        colour = MARKED if name == panel.marked else PLAIN
        axes.plot(
            numbers, [place] * len(numbers), "o", color=colour, markersize=5, alpha=0.55, markeredgewidth=0
        )
        axes.plot([mean(numbers)], [place], "|", color=colour, markersize=15, markeredgewidth=2)
