"""The figures of README and docs/evidence.md.

Takes their tables, gives for each row the cell of a committed table it is to agree with.

`python -m benchmarks.figures` writes the cells into both pages again, after a table was printed anew. A row
is

    | what it is | figure | [table](benchmarks/results/TABLE.md) `row` `column` |

with the heading of a section in front of the row, in the same way, where the table's page has several alike.
The figure is the cell up to its first semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sheets.sheet import ROOT

README = ROOT / "README.md"
HEADING = "## Figures"
"""Of the section of the README that is all figures."""

EVIDENCE = ROOT / "docs" / "evidence.md"
"""All of its tables are figures."""

_ROW = re.compile(
    r"^\| (?P<words>[^|]+) \| (?P<value>[^|]+) \| \[[^\]]+\]\((?P<page>[^)]+)\) (?P<place>`[^|]+`) \|$"
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row."""

    words: str
    value: str
    page: str
    place: tuple[str, ...]
    """Section (may be left out), row, column."""


def section(text: str) -> list[str]:
    """The lines under the heading, to the next one; all of a page that hasn't got it."""
    lines = text.splitlines()
    if HEADING not in lines:
        return lines
    first = lines.index(HEADING) + 1
    last = next((number for number in range(first, len(lines)) if lines[number].startswith("#")), len(lines))
    return lines[first:last]


def read_figures(text: str) -> list[Figure]:
    """All rows that name a cell; any other row of a table is refused."""
    found = []
    for line in _rows(section(text)):
        if (match := _ROW.match(line)) is None:
            raise ValueError(
                f"this row names no cell: {line}. Write [table](page) `row` `column` at its end."
            )
        found.append(
            Figure(
                match["words"], match["value"], match["page"], tuple(re.findall(r"`([^`]+)`", match["place"]))
            )
        )
    return found


def _rows(lines: list[str]) -> Iterator[str]:
    """The rows of all tables, without their headers."""
    for number, line in enumerate(lines):
        is_rule = line.startswith("|-")
        is_header = number + 1 < len(lines) and lines[number + 1].startswith("|-")
        if line.startswith("|") and not is_rule and not is_header:
            yield line


def look_up(figure: Figure, folder: Path = ROOT) -> str:
    """The cell that a figure is to agree with; `folder` is that of the page which shows the figure."""
    page = folder / figure.page
    if not page.exists():
        raise ValueError(
            f"{figure.words}: there is no {figure.page}. Only what a committed table says may be shown."
        )
    *heading, row, column = figure.place
    cells = [
        cell
        for where, cell in _cells(page.read_text(encoding="utf-8"), row, column)
        if not heading or where == heading[0]
    ]
    if len(cells) != 1:
        place = " / ".join(figure.place)
        raise ValueError(
            f"{figure.words}: {figure.page} has {len(cells)} cells at {place}. Name one, its section in "
            "front if need be."
        )
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


def refreshed(text: str, folder: Path = ROOT) -> str:
    """The page with every figure as its table has it now."""
    for figure in read_figures(text):
        place = " ".join(f"`{name}`" for name in figure.place)
        before, _, after = text.partition(f"| {figure.words} | {figure.value} | ")
        assert f"({figure.page}) {place} |" in after.partition("\n")[0], (
            f"{figure.words}: two rows have the same words"
        )
        text = f"{before}| {figure.words} | {look_up(figure, folder)} | {after}"
    return text


def main() -> None:
    """Write both pages again."""
    for page in (README, EVIDENCE):
        page.write_text(refreshed(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")


if __name__ == "__main__":
    main()
