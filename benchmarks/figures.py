"""The figures of the README: takes its section Figures, gives for each row the cell of a committed table that it is to agree with.

`python -m benchmarks.figures` writes the cells into the README again, after a table was printed anew. A row is

    | what it is | figure | [table](benchmarks/results/TABLE.md) `row` `column` |

with the heading of a section in front of the row, in the same way, where the page has several tables alike. The figure is the cell up
to its first semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sheet import ROOT

README = ROOT / "README.md"
HEADING = "## Figures"
_ROW = re.compile(r"^\| (?P<words>[^|]+) \| (?P<value>[^|]+) \| \[[^\]]+\]\((?P<page>[^)]+)\) (?P<place>`[^|]+`) \|$")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the README."""

    words: str
    value: str
    page: str
    place: tuple[str, ...]
    """Section (may be left out), row, column."""


def section(text: str) -> list[str]:
    """The lines under the heading, to the next one."""
    lines = text.splitlines()
    first = lines.index(HEADING) + 1
    last = next((number for number in range(first, len(lines)) if lines[number].startswith("#")), len(lines))
    return lines[first:last]


def read_figures(text: str) -> list[Figure]:
    """All rows that name a cell; any other row of a table is refused."""
    found = []
    for line in [line for line in section(text) if line.startswith("|")][2:]:
        if (match := _ROW.match(line)) is None:
            raise ValueError(f"this row names no cell: {line}. Write [table](page) `row` `column` at its end.")
        found.append(Figure(match["words"], match["value"], match["page"], tuple(re.findall(r"`([^`]+)`", match["place"]))))
    return found


def look_up(figure: Figure, root: Path = ROOT) -> str:
    """The cell that a figure is to agree with."""
    page = root / figure.page
    if not page.exists():
        raise ValueError(f"{figure.words}: there is no {figure.page}. Only what a committed table says may be shown.")
    *heading, row, column = figure.place
    cells = [cell for where, cell in _cells(page.read_text(encoding="utf-8"), row, column) if not heading or where == heading[0]]
    if len(cells) != 1:
        place = " / ".join(figure.place)
        raise ValueError(f"{figure.words}: {figure.page} has {len(cells)} cells at {place}. Name one, its section in front if need be.")
    return cells[0].partition(";")[0].strip()


def _cells(page: str, row: str, column: str) -> Iterator[tuple[str, str]]:
    """Every cell in a row and a column of these names, with the heading that its table stands under."""
    heading, header = "", list[str]()
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            header = cells
        elif cells[0] == row and column in header:
            yield heading, cells[header.index(column)]


def refreshed(text: str, root: Path = ROOT) -> str:
    """The README with every figure as its table has it now."""
    for figure in read_figures(text):
        place = " ".join(f"`{name}`" for name in figure.place)
        before, _, after = text.partition(f"| {figure.words} | {figure.value} | ")
        assert f"({figure.page}) {place} |" in after.partition("\n")[0], f"{figure.words}: two rows have the same words"
        text = f"{before}| {figure.words} | {look_up(figure, root)} | {after}"
    return text


def main() -> None:
    """Write the README again."""
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
