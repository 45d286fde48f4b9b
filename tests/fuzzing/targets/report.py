"""What a run wrote about itself: page, card and table come out, or one line does."""

from __future__ import annotations

import json
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rich.console import Console

from fuzzing.mutation import as_json, flipped, mutated, places_in, truncated, write_sparse
from fuzzing.registry import Attempt, Trial, target
from support.finished import make_report
from trainonce.cli.printing import finite
from trainonce.runs.report.run_table import as_run_table
from trainonce.runs.report.writing import read_report, write_report

HOSTILE: tuple[Any, ...] = (
    *("<script>alert(1)</script>", "<img src=x onerror=y>", "' onload='x", "[/x]", "[bold]", "</td>", "&lt;"),
    *("{{ 7 * 7 }}", "javascript:x", "![a](b)", "\x1b[2J", "\u202e", "\x00", "\ud800", "x" * 3000),
    *(2**63, 10**30, 10**300, 1e-320, 1e308, -1e308, float("nan"), float("inf"), -float("inf"), -1, 0),
    *([[1, 2]], ["a"], {"median": 0, "low": 0, "high": 0}),
)
NAMES = ("", "<b>", "[/x]", "phase", "name", "\x1b", "<script>")
ENDS = (b"[" * 5000, b"{" * 5000, b"9" * 5000, b"NaN", b"1e999", b"\xff\xfe", b"\\ud800")


@target("report", cases=500)
def report(place: Path) -> Trial:
    (place / "small").mkdir()
    # Fuzzing a report that is refused undamaged would show nothing.
    for is_finished in (True, False):
        write_facts(place, full_report(), is_finished=is_finished, dice=random.Random(0))
        show_run(place)

    def trial(dice: random.Random) -> Attempt:
        facts = full_report()
        if dice.random() < 0.8:
            for _ in range(dice.randint(0, 2)):
                facts = dice.choice((plant, plant, rename))(facts, dice)
            if dice.random() < 0.5:
                facts = mutated(facts, dice)
        write_facts(place, facts, is_finished=dice.random() < 0.6, dice=dice)
        if dice.random() < 0.3:
            break_file(dice.choice([path for path in sorted(place.iterdir()) if path.is_file()]), dice)
        return lambda: show_run(place)

    return trial


def full_report() -> dict[str, Any]:
    """A report with all that some run has written."""
    facts = make_report()
    facts["agreement"] |= {"unit": "pixels", "num_compared": 5000}
    return facts | {"baseline": dict(facts["after"]), "missing": {"latency": "RuntimeError: no clock"}}


def plant(facts: Any, dice: random.Random) -> Any:
    """A text that would be code in a page, or a number that no run has measured, somewhere."""
    if places := places_in(facts):
        container, key = dice.choice(places)
        container[key] = dice.choice(HOSTILE)
    return facts


def rename(facts: Any, dice: random.Random) -> Any:
    named = [(container, key) for container, key in places_in(facts) if isinstance(container, dict)]
    if named:
        container, key = dice.choice(named)
        container[dice.choice(NAMES)] = container.pop(key)
    return facts


def write_facts(folder: Path, facts: Any, *, is_finished: bool, dice: random.Random) -> None:
    """A finished run, or one that still trains."""
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    if is_finished or not isinstance(facts, dict):
        (folder / "report.json").write_bytes(as_json(facts, dice))
        return
    history = facts.get("history")
    records = history if isinstance(history, list) else [history]
    (folder / "metrics.jsonl").write_bytes(b"".join(as_json(record, dice) + b"\n" for record in records))
    (folder / "env.json").write_bytes(as_json(facts.get("environment"), dice))
    (folder / "config.yaml").write_bytes(as_json(facts.get("config"), dice))


def break_file(file: Path, dice: random.Random) -> None:
    content = file.read_bytes()
    kind = dice.randrange(6)
    if kind < 2:
        file.write_bytes((flipped, truncated)[kind](content, dice))
    elif kind == 2:
        file.write_bytes(content[: dice.randrange(len(content) + 1)] + dice.choice(ENDS))
    elif kind == 3:
        file.write_bytes(2 * content)
    elif kind == 4:
        part = dice.choice([b"[],", b'{"a":[]},', b'"ab",', b"257,", "\U0001f600".encode() + b","])
        file.write_bytes(b'{"history": [' + part * (dice.choice([2**16, 2**20]) // len(part)) + b"0]}")
    else:
        write_sparse(file, dice.choice([2**28, 2**35]))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")], "the page has a handler"
        assert not [value for _, value in attrs if (value or "").strip().startswith("javascript:")]


def show_run(folder: Path) -> str:
    """All that `trainonce report` does; nothing of a stranger's becomes code in a page or moves a cursor."""
    facts = read_report(folder)
    tags = Tags()
    tags.feed(write_report(folder, facts).read_text(encoding="utf-8"))
    assert not tags.names & {"script", "img", "iframe", "object", "embed"}, "the page has tags of a stranger"
    assert "<" not in (folder / "small" / "README.md").read_text(encoding="utf-8"), "the card has tags"
    json.dumps(finite(facts), allow_nan=False)
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(as_run_table(facts))
    assert all(letter == "\n" or letter.isprintable() for letter in capture.get()), (
        "the table steers the terminal"
    )
    return "shown"
