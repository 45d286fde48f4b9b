"""The figures on README.md and docs/evidence.md.

Takes a page, gives every figure on it with the cell of a committed sheet that it must equal.

A figure stands between two HTML comments, which no reader sees:

    <!-- SHEET > ROW > COLUMN -->74.56<!--/-->

SHEET is a file of benchmarks/results without its ending. Where a sheet has several tables alike, the heading
of one goes in front of the row: `SHEET > HEADING > ROW > COLUMN`. The figure is the cell up to its first
semicolon. Of a cell that holds more, `@ in brackets`, `@ before the slash` or `@ after the slash` at the end
of the address takes a part.

`python -m benchmarks.figures` writes the cells into both pages again after a sheet was printed anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sheets.sheet import ROOT

README = ROOT / "README.md"
HEADING = "## Compared"
"""The section of the README that holds its figures."""

EVIDENCE = ROOT / "docs" / "evidence.md"
"""All of its tables are figures."""

RESULTS = ROOT / "benchmarks" / "results"

MARKED = re.compile(r"<!-- (?P<address>[^<>]+(?: > [^<>]+)+) -->(?P<value>[^<>|]*)<!--/-->")

_PARTS = {
    "in brackets": r"\(([^()]*)\)\s*$",
    "before the slash": r"^([^/]*[^/ ]) / ",
    "after the slash": r" / (.*)$",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A value on a page, and the cell that it must equal."""

    value: str
    sheet: str
    place: tuple[str, ...]
    """Heading (may be left out), row, column."""
    part: str = ""

    @property
    def address(self) -> str:
        """The words between the comment's marks."""
        return " > ".join((self.sheet, *self.place)) + (f" @ {self.part}" if self.part else "")


def section(text: str) -> list[str]:
    """The lines under the heading, down to the next one; all lines of a page without it."""
    lines = text.splitlines()
    if HEADING not in lines:
        return lines
    first = lines.index(HEADING) + 1
    last = next((number for number in range(first, len(lines)) if lines[number].startswith("#")), len(lines))
    return lines[first:last]


def read_figures(text: str) -> list[Figure]:
    """All marked figures of a page; a comment that opens none, or is not closed, is refused."""
    whole = len(re.findall(r"<!-- [^<>]* > ", text))
    found = [_figure(match) for match in MARKED.finditer(text)]
    if len(found) != whole or text.count("<!--/-->") != whole:
        raise ValueError(
            f"{whole} comments open a figure, {len(found)} of them are whole. Write "
            "<!-- SHEET > ROW > COLUMN -->figure<!--/-->."
        )
    return found


def _figure(match: re.Match[str]) -> Figure:
    address, _, part = match["address"].partition(" @ ")
    sheet, *place = address.split(" > ")
    return Figure(match["value"], sheet, tuple(place), part)


def look_up(figure: Figure, folder: Path = RESULTS) -> str:
    """The text that a figure must equal, from the sheet in `folder`."""
    page = folder / f"{figure.sheet}.md"
    if not page.exists():
        raise ValueError(
            f"{figure.address}: there is no {page.name}. Only figures of committed sheets are shown."
        )
    if len(figure.place) not in (2, 3):
        raise ValueError(
            f"{figure.address}: an address is SHEET > ROW > COLUMN, or with a HEADING before ROW."
        )
    *heading, row, column = figure.place
    cells = [
        cell
        for where, cell in _cells(page.read_text(encoding="utf-8"), row, column)
        if not heading or where == heading[0]
    ]
    if len(cells) != 1:
        raise ValueError(
            f"{figure.address}: {page.name} has {len(cells)} such cells. Name exactly one, with its "
            "heading if need be."
        )
    return _part(cells[0].partition(";")[0].strip(), figure)


def _part(cell: str, figure: Figure) -> str:
    if not figure.part:
        return cell
    if figure.part not in _PARTS:
        raise ValueError(f"{figure.address}: a part is one of {', '.join(_PARTS)}.")
    found = re.search(_PARTS[figure.part], cell)
    if found is None:
        raise ValueError(f"{figure.address}: {cell!r} has no such part.")
    return found.group(1)


def _cells(page: str, row: str, column: str) -> list[tuple[str, str]]:
    """Every cell in a row and a column of these names, with the heading above its table."""
    heading, header, found = "", list[str](), []
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
            found.append((heading, cells[header.index(column)]))
    return found


def refreshed(text: str, folder: Path = RESULTS) -> str:
    """The page with every figure as its sheet has it now."""
    read_figures(text)

    def write(match: re.Match[str]) -> str:
        return f"<!-- {match['address']} -->{look_up(_figure(match), folder)}<!--/-->"

    return MARKED.sub(write, text)


def unmarked(text: str) -> str:
    """The page without its marked figures: what is left has to do without measurements."""
    return MARKED.sub("", text)


def main() -> None:
    """Write both pages again."""
    for page in (README, EVIDENCE):
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
