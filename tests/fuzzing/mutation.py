"""Ways to damage a file: bytes, JSON, and tensors; all chosen by the dice that is given."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

JUNK: tuple[Callable[[random.Random], Any], ...] = (
    lambda dice: dice.choice([None, True, False, "", [], {}, [[]], {"": None}, [None]]),
    lambda dice: dice.choice([-1, 0, 1, 2, 3, 8, 255, 256, 2**31, 2**63, -(2**63), 2**70, 10**300, 10**4000]),
    lambda dice: dice.choice([0.0, -0.0, 1.5, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")]),
    lambda dice: dice.choice(
        [
            "../../etc/passwd",
            "__class__",
            "\x1b[31m",
            "a\nb",
            "\u202e",
            "\ud800",
            "%s",
            "{x}",
            "[red]",
            "\x00",
        ]
    ),
    lambda dice: dice.choice(["x", "\n", "\U0001f600", "\x07"]) * dice.choice([100, 5000, 200_000]),
    lambda dice: nested(dice.choice([5, 60, 400, 3000]), dice.choice([list, dict])),
    lambda dice: [dice.randrange(300)] * dice.choice([10, 1000, 50_000]),
    lambda dice: {str(number): number for number in range(dice.choice([5, 500, 5000]))},
    lambda dice: [dice.randrange(-2, 20) for _ in range(dice.randrange(6))],
)


def nested(depth: int, kind: type) -> Any:
    """A container in a container in a container."""
    found: Any = 1
    for _ in range(depth):
        found = [found] if kind is list else {"a": found}
    return found


def flipped(content: bytes, dice: random.Random) -> bytes:
    """A few bits or bytes changed, cut out or put in."""
    damaged = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 3, 20))):
        if not damaged:
            return bytes(damaged)
        place = dice.randrange(len(damaged))
        action = dice.randrange(5)
        if action == 0:
            damaged[place] ^= 1 << dice.randrange(8)
        elif action == 1:
            damaged[place] = dice.randrange(256)
        elif action == 2:
            del damaged[place : place + dice.choice((1, 8, 300))]
        elif action == 3:
            damaged[place:place] = dice.randbytes(dice.choice((1, 8, 300)))
        else:
            damaged[place:place] = damaged[place : place + dice.choice((2, 30))]
    return bytes(damaged)


def truncated(content: bytes, dice: random.Random) -> bytes:
    """The beginning of it."""
    return content[: dice.randrange(len(content) + 1)]


def places_in(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a JSON value."""
    found, waiting = [], [node]
    while waiting:
        here = waiting.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        for key in keys:
            found.append((here, key))
            waiting.append(here[key])
    return found


def mutated(data: Any, dice: random.Random) -> Any:
    """A copy of JSON data with a few values changed, moved, doubled, renamed or gone."""
    data = copy.deepcopy(data)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        places = places_in(data)
        if not places:
            return junk(dice)
        container, key = dice.choice(places)
        action = dice.randrange(7)
        if action == 0:
            del container[key]
        elif action == 1 and isinstance(container, dict):
            container[dice.choice(["a", "", "\n", "\x1b[31m", "x" * 5000, f"{key}'", "__class__"])] = (
                container.pop(key)
            )
        elif action == 2 and isinstance(container, list):
            container.insert(key, junk(dice))
        elif action == 3:
            # A value of the file itself at another place: right in kind, wrong in meaning.
            other, there = dice.choice(places)
            if isinstance(other, list) or there in other:
                value = other[there] if not isinstance(other, list) or there < len(other) else None
                # A container would hold itself if it were not copied; one that is too deep for that stays
                # out.
                with suppress(RecursionError):
                    container[key] = copy.deepcopy(value)
        elif action == 4 and type(container[key]) is int:
            container[key] += dice.choice((-1, 1, 2, 1000))
        elif (
            action == 5
            and isinstance(container[key], list)
            and 0 < len(container[key]) < 50
            and len(places) < 5000
        ):
            container[key] = container[key] * dice.choice((2, 100))
        else:
            container[key] = junk(dice)
    return data


def junk(dice: random.Random) -> Any:
    """A value that has no place in any file."""
    return dice.choice(JUNK)(dice)


def as_json(data: Any, dice: random.Random) -> bytes:
    """The data as text, in one of several spellings.

    What Python can't write becomes something else that nobody expects.
    """
    try:
        text = json.dumps(data, ensure_ascii=dice.random() < 0.8)
    except (RecursionError, ValueError):
        text = dice.choice(("[" * 100_000, '{"a":' * 50_000, "[1e999999, NaN, -Infinity]", "9" * 100_000))
    return text.encode("utf-8", "surrogatepass")


def write_sparse(file: Path, num_bytes: int) -> None:
    """Make a file this large; what was not in it takes no room."""
    os.truncate(file, num_bytes)


def replace_by_no_file(file: Path, dice: random.Random) -> None:
    """Nothing, a folder or a link in the place of a file."""
    file.unlink()
    if dice.random() < 0.5:
        file.mkdir()
    elif dice.random() < 0.5:
        file.symlink_to(dice.choice(["/dev/zero", "nowhere", "/"]))


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Sums that are right for what is there now, so that damage is found by what reads it."""
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))
