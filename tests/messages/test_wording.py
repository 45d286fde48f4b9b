"""Whatever stands in a file, a message about it is one short line that any terminal can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainonce.messages.plain_text import LONGEST_VALUE, quoted, shown, shown_path

DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]

VALUES = {
    "long": "x" * 10_000_000,
    "lines": "a\nb\r\nc\u2028d\x85e",
    "escapes": "\x1b[31mred\x1b[0m\x07\x00",
    "directions": "abc\u202edef\u200b",
    "half a letter": "\ud800",
    "a large number": 10**5000,
    "many numbers": list(range(100_000)),
    "deep": DEEP,
    "an error": ValueError("a\n" * 1000),
    "an error without words": KeyError(),
    "nothing": None,
}


@pytest.mark.parametrize("name", list(VALUES))
@pytest.mark.parametrize("show", [shown, quoted])
def test_any_value_becomes_one_short_printable_line(name: str, show: Any):
    line = show(VALUES[name])
    assert line.isprintable()
    assert 0 < len(line) <= LONGEST_VALUE


def test_what_is_harmless_stays_as_it_is():
    assert shown("first.weight") == "first.weight"
    assert quoted("first.weight") == "'first.weight'"
    assert shown((1, 2)) == "(1, 2)"
    assert shown(OSError(28, "No space left on device")) == "[Errno 28] No space left on device"
    assert shown("Gr\u00f6\u00dfe") == "Gr\u00f6\u00dfe"


def test_of_a_long_path_the_end_is_shown():
    path = Path("/" + "/".join(["folder"] * 200)) / "plan.json"
    assert shown_path(path).endswith("folder/plan.json")
    assert len(shown_path(path)) <= 300
    assert shown_path("a\nb\x1b[31m").isprintable()
    assert shown_path(Path("runs/demo")) == "runs/demo"
