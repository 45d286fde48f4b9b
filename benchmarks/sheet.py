"""A sheet of results.

Takes a command, what it was run with and rows, gives Markdown in `benchmarks/results/`.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
CACHE = Path(__file__).parent / ".cache"


_PLACES = {"--data": "PATH", "--out": None, "--hesso-python": None}
"""Options whose value is a place on one machine: said by a word, or left out."""

_LEFT_OUT = ("--table-only", "--afresh")
"""About what is there already; the command that makes a sheet has no such word."""


def spoken_command(words: Sequence[str] | None = None) -> str:
    """The command that is being run, as anyone could run it."""
    spoken, left = ["python -m benchmarks"], list(sys.argv[1:] if words is None else words)
    while left:
        option, equals, _ = (word := left.pop(0)).partition("=")
        if option in _LEFT_OUT:
            continue
        if option not in _PLACES:
            spoken.append(word)
            continue
        if not equals and left:
            left.pop(0)
        place = _PLACES[option]
        spoken += [option, place] if place else []
    return " ".join(spoken)


def heading(*, seeds: str, packages: Sequence[str] = ("torch",), remark: str = "") -> list[str]:
    """The lines over every sheet: how to print it again, and what it was printed with."""
    versions = ", ".join(f"{name} {version_of(name)}" for name in packages)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    lines = [
        f"    {spoken_command()}",
        "",
        f"{today}; {versions}; Python {platform.python_version()}; {machine}; {seeds}.",
    ]
    return [*lines, "", remark] if remark else lines


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


def yes(claim: bool) -> str:
    """How a bar is marked."""
    return "yes" if claim else "NO"


def bar_table(bars: Iterable[tuple[str, str, str, bool]]) -> list[str]:
    """What was wanted, what was found, and whether that is met.

    One row each, with words that no other row has.
    """
    return table(
        ("what", "bar", "found", "met"),
        [(what, wanted, found, yes(is_met)) for what, wanted, found, is_met in bars],
    )


def ratio_table(ratios: Mapping[str, float], bar: float) -> list[str]:
    """Ours beside a plain loop, each of them to be at most the bar."""
    return table(
        ("what", "bar", "ours / plain", "met"),
        [(what, f"<= {bar}", f"{found:.3f}", yes(found <= bar)) for what, found in ratios.items()],
    )


def write_sheet(path: Path, lines: Iterable[str]) -> None:
    """Write the whole sheet; an older one is replaced at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
    unfinished.replace(path)
    print(f"written: {path}")
