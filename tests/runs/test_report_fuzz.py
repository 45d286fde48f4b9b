"""Random damage to what a run wrote about itself: page, card and table come out, or one line does."""

import copy
import json
import random
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from support.finished import make_report
from trainonce.cli.printing import finite
from trainonce.runs.report.run_table import as_run_table
from trainonce.runs.report.writing import read_report, write_report

NUM_CASES = 400
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, -(2**70), 10**30, 10**300),
    *(0.0, -0.0, 1e-320, 1e308, -1e308, 0.5, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "x" * 3000,
        "<script>alert(1)</script>",
        "<img src=x onerror=y>",
        "' onload='x",
        "[/x]",
        "[bold]",
        "\x1b[2J",
        "\u202e",
        "\x00",
        "\ud800",
    ),
    *([], {}, [[]], {"": {}}, [None], [1, 2], ["a"], {"a": 1}, [[1, 2]], {"median": 0, "low": 0, "high": 0}),
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a value with each of its keys or positions."""
    keys = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def replace_value(report: dict[str, Any], rng: random.Random) -> None:
    container, key = rng.choice(places(report))
    container[key] = copy.deepcopy(rng.choice(VALUES))


def remove_value(report: dict[str, Any], rng: random.Random) -> None:
    container, key = rng.choice(places(report))
    del container[key]


def swap_values(report: dict[str, Any], rng: random.Random) -> None:
    (one, key), (other, place) = rng.choice(places(report)), rng.choice(places(report))
    one[key] = copy.deepcopy(other[place])


def rename_key(report: dict[str, Any], rng: random.Random) -> None:
    dicts = [(container, key) for container, key in places(report) if isinstance(container, dict)]
    container, key = rng.choice(dicts)
    container[rng.choice(["", "<b>", "[/x]", "phase", "name", "\x1b"])] = container.pop(key)


MUTATIONS: list[Callable[[dict[str, Any], random.Random], None]] = [
    replace_value,
    replace_value,
    remove_value,
    swap_values,
    rename_key,
]


def break_text(text: str, rng: random.Random) -> bytes:
    content = bytearray(text.encode())
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(content[: rng.randrange(len(content))])
    if kind == 1:
        for _ in range(rng.randint(1, 5)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        return bytes(content)
    if kind == 2:
        place = rng.randrange(len(content))
        return bytes(content[:place]) + rng.choice(
            [b"[" * 5000, b"{" * 5000, b"9" * 5000, b"NaN", b"1e999", b"\xff\xfe", (b"\\ud800")]
        )
    return bytes(content) + bytes(content)


def write_damaged(folder: Path, seed: int) -> None:
    """A finished run or one that still trains, with something wrong in it."""
    rng = random.Random(seed)
    report = make_report()
    if rng.random() < 0.8:
        for _ in range(rng.randint(1, 3)):
            if places(report):
                rng.choice(MUTATIONS)(report, rng)
    is_broken = rng.random() < 0.3
    texts = {"report.json": json.dumps(report)}
    if rng.random() < 0.4:
        history, config = report.get("history"), report.get("config")
        records = history if isinstance(history, list) else [history]
        texts = {"metrics.jsonl": "".join(json.dumps(record) + "\n" for record in records)}
        texts |= {"env.json": json.dumps(report.get("environment")), "config.yaml": json.dumps(config)}
    (folder / "small").mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    for name, text in texts.items():
        content = break_text(text, rng) if is_broken and rng.random() < 0.6 else text.encode()
        (folder / name).write_bytes(content)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.names.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("start", range(0, NUM_CASES, 100))
def test_a_damaged_report_is_shown_or_refused_in_one_line(start: int, tmp_path: Path):
    console = Console(width=100, color_system=None)
    shown = 0
    for seed in range(start, start + 100):
        write_damaged(tmp_path, seed)
        try:
            report = read_report(tmp_path)
        except ValueError as error:
            message = str(error)
            assert message.isprintable(), (seed, message)
            assert len(message) < 1000, (seed, message)
            continue
        shown += 1
        tags = Tags()
        tags.feed(write_report(tmp_path, report).read_text(encoding="utf-8"))
        assert not tags.names & {"script", "img", "iframe"}, seed
        assert "<" not in (tmp_path / "small" / "README.md").read_text(encoding="utf-8"), seed
        json.dumps(finite(report), allow_nan=False)
        with console.capture() as capture:
            console.print(as_run_table(report))
        assert all(letter == "\n" or letter.isprintable() for letter in capture.get()), seed
    assert 10 < shown < 90
