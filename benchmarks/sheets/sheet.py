"""A sheet of results.

Takes a command, what it was run with and rows, gives Markdown in `benchmarks/results/`.
"""

from __future__ import annotations

import csv
import datetime
import io
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
CACHE = ROOT / "benchmarks" / ".cache"


_PLACES = {
    **dict.fromkeys(("--data", "--data-dir"), "PATH"),
    **dict.fromkeys(("--runs", "--out", "--hesso-python", "--modelopt-python", "--others-python"), None),
}
"""Options whose value is a place on one machine: said by a word, or left out."""

_LEFT_OUT = ("--table-only", "--afresh")
"""About what is there already; the command that makes a sheet has no such word."""


def spoken_command(words: Sequence[str] | None = None) -> str:
    """The command that is being run, as anyone could run it."""
    spoken, left = ["python -m benchmarks"], list(sys.argv[1:] if words is None else words)
    while left:
        option, equals, value = (word := left.pop(0)).partition("=")
        if option in _LEFT_OUT:
            continue
        if option not in _PLACES:
            spoken.append(word)
            continue
        if not equals and left:
            value = left.pop(0)
        kind = "folder:" if value.startswith("folder:") else ""
        place = _PLACES[option]
        spoken += [option, kind + place] if place else []
    return " ".join(spoken)


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def heading(*packages: str, seeds: str = "seed 0") -> list[str]:
    """The lines over every sheet: how to print it again, and what it was printed with, besides torch."""
    versions = ", ".join(f"{name} {version_of(name)}" for name in ("torch", *packages))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    said = f"{today()}; {versions}; Python {platform.python_version()}; {machine}; {seeds}."
    return [f"    {spoken_command()}", "", said]


def heading_of_runs(results: Sequence[Mapping[str, Any]], *, seeds: str) -> list[str]:
    """The same where the runs were made before, maybe elsewhere: what they themselves say."""
    found: dict[str, set[str]] = {}
    for result in results:
        for package, number in result["versions"].items():
            found.setdefault(package, set()).update({number} - {"missing"})
    versions = ", ".join(
        f"{package} {' and '.join(sorted(numbers))}" for package, numbers in sorted(found.items()) if numbers
    )
    days = sorted({result["date"] for result in results}) or ["no run yet"]
    threads = " or ".join(str(number) for number in sorted({result["threads"] for result in results}))
    said = [
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        versions,
        f"{platform.machine()}, {threads} thread(s) a run",
        seeds,
    ]
    return [f"    {spoken_command()}", "", "; ".join(part for part in said if part) + "."]


def version_of(package: str) -> str:
    """The installed version, or a word that it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows as Markdown."""
    return [_row(header), "|---" * len(header) + "|", *(_row(row) for row in rows)]


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(" ".join(str(cell).replace("|", "/").split()) for cell in cells) + " |"


def yes(claim: bool, no: str = "NO") -> str:
    """How a bar is marked."""
    return "yes" if claim else no


Bar = tuple[str, str, str, bool]
"""What is measured, what is wanted, what was found, and whether that meets it."""


def bar_table(bars: Iterable[Bar]) -> list[str]:
    """One row per bar, with words that no other row has."""
    return table(("what", "bar", "found", "met"), [(*words, yes(is_met)) for *words, is_met in bars])


def count_bar(what: str, num_good: int, total: int, wanted: str = "all") -> Bar:
    """The bar that all of so many things are good."""
    return what, wanted, f"{num_good} of {total}", num_good == total


def exit_code(bars: Iterable[Bar]) -> int:
    """1 if a bar is missed."""
    return 0 if all(is_met for *_, is_met in bars) else 1


def ratio_table(ratios: Mapping[str, float], bar: float, *, beside: str = "plain") -> list[str]:
    """Ours relative to another loop; each ratio has to be at most the bar."""
    return table(
        ("what", "bar", f"ours / {beside}", "met"),
        [(what, f"<= {bar:.2f}", f"{found:.3f}", yes(found <= bar)) for what, found in ratios.items()],
    )


def replace_file(path: Path, content: str) -> None:
    """Write a file at once or not at all; several processes may do so at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    unfinished.write_text(content, encoding="utf-8")
    unfinished.replace(path)


def write_sheet(path: Path, title: str, *blocks: str | Iterable[str]) -> None:
    """Write the whole sheet: paragraphs and tables with an empty line between them."""
    texts = [block if isinstance(block, str) else "\n".join(block) for block in (f"# {title}", *blocks)]
    replace_file(path, "\n\n".join(text.strip("\n") for text in texts if text.strip()) + "\n")
    print(f"written: {path}")


def figure_lines(words: str, figure: Path, *, has_data: bool = False) -> str:
    """The line that shows a figure in the folder of its sheet, and links the CSV beside it."""
    place = f"{figure.parent.name}/{figure.name}"
    data = f" ([data]({figure.parent.name}/{figure.stem}.csv))" if has_data else ""
    return f"![{words}]({place}){data}"


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The data of a figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    replace_file(path, text.getvalue())
