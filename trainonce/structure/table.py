"""A table as plain data, and as text or HTML: rows under headings, then a few lines of summary."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass

WIDTH = 110
"""Columns that a table takes at most, as text."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is shown."""

    heading: str
    is_number: bool = False
    widest: int = WIDTH
    """Longer text is folded."""


@dataclass(frozen=True, slots=True)
class Row:
    """The text in each column."""

    cells: tuple[str, ...]
    is_dim: bool = False
    """Whether it matters less than others."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, rows under their columns, and what is said below them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    lines: tuple[str, ...]

    def as_text(self) -> str:
        """The table in lines of at most `WIDTH` characters; the last column takes what the others leave."""
        widths = [
            min(column.widest, max([len(column.heading), *(len(row.cells[place]) for row in self.rows)]))
            for place, column in enumerate(self.columns)
        ]
        widths[-1] = min(widths[-1], max(20, WIDTH - sum(widths[:-1]) - 2 * (len(widths) - 1)))
        text = _folded(self.title, WIDTH)
        if self.rows:
            text += self._spread([column.heading for column in self.columns], widths)
            text.append("  ".join("-" * width for width in widths))
            for row in self.rows:
                text += self._spread(row.cells, widths)
        return "\n".join([*text, *(part for line in self.lines for part in _folded(line, WIDTH))])

    def as_html(self) -> str:
        """The table for a notebook."""
        headings = "".join(f"<th>{html.escape(column.heading)}</th>" for column in self.columns)
        rows = "".join(
            f'<tr style="opacity: {0.6 if row.is_dim else 1}">{self._html_cells(row)}</tr>'
            for row in self.rows
        )
        lines = "<br>".join(html.escape(line) for line in self.lines)
        return (
            f"<p><b>{html.escape(self.title)}</b></p>"
            f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table><p>{lines}</p>"
        )

    def _html_cells(self, row: Row) -> str:
        sides = ["right" if column.is_number else "left" for column in self.columns]
        return "".join(
            f'<td style="text-align: {side}">{html.escape(cell)}</td>'
            for side, cell in zip(sides, row.cells, strict=True)
        )

    def _spread(self, cells: tuple[str, ...] | list[str], widths: list[int]) -> list[str]:
        """One row as lines: cells that are too long go on below themselves."""
        folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
        lines = []
        for number in range(max(map(len, folded))):
            parts = [parts[number] if number < len(parts) else "" for parts in folded]
            aligned = [
                part.rjust(width) if column.is_number else part.ljust(width)
                for part, width, column in zip(parts, widths, self.columns, strict=True)
            ]
            lines.append("  ".join(aligned).rstrip())
        return lines


def as_percent(part: int, whole: int) -> str:
    """A share such as 12.5%; a dash if there is nothing to have a share of."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def in_units(count: float) -> str:
    """A count such as `1.13 M`."""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return str(int(count))


def _folded(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width) or [""]
