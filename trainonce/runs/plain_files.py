"""Small YAML and JSON files that anyone may have written: gives plain data, of bounded size."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from trainonce.errors import TrainonceError
from trainonce.messages.plain_text import in_one_line, reason_of

LARGEST_YAML = 100_000
"""Bytes; the settings of a run take two thousand."""
DEEPEST_YAML = 16
LARGEST_WHOLE = 2**64
"""No setting is larger; an endless number could not even be printed."""
DEEPEST_JSON = 32
LARGEST_JSON = 64 * 2**20
LARGEST_FOREIGN_JSON = LARGEST_JSON // 4
"""For text that is not plain ASCII: one such character makes all others take 4 bytes. We write none."""
MOST_LINES = 200_000
"""Of records, one per epoch."""
MOST_VALUES = 4_000_000
"""In JSON: so many Python objects take a few hundred megabytes, whatever the size of the file."""


class UnreadableFileError(TrainonceError, ValueError):
    """A file that can't be read, or doesn't hold what it should."""


class _PlainLoader(yaml.SafeLoader):
    """YAML without anchors, which turn a few bytes into gigabytes, and of limited depth."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node; anchors and deep nesting are refused."""
        event: Any = self.peek_event()
        if getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors (&) and aliases (*) are not allowed here", problem_mark=event.start_mark
            )
        self.depth += 1
        if self.depth > DEEPEST_YAML:
            raise yaml.MarkedYAMLError(problem="it is nested too deeply", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Names with their values; duplicate names are refused."""
        seen = set()
        for name, _ in node.value:
            if name.value in seen and isinstance(name.value, str):
                raise yaml.MarkedYAMLError(
                    problem=f"{in_one_line(name.value, 60)} is given twice", problem_mark=name.start_mark
                )
            seen.add(name.value if isinstance(name.value, str) else None)
        return super().construct_mapping(node, deep=deep)


def read_bytes(file: Path, largest: int) -> bytes:
    """The content of a regular file of at most `largest` bytes."""
    try:
        # Reading a pipe that nobody writes to never ends; the shell's own pipes are in /dev.
        if not stat.S_ISREG(os.stat(file).st_mode) and not str(file).startswith("/dev/"):
            raise UnreadableFileError(f"{file} is not a file.")
        with file.open("rb") as stream:
            found = stream.read(largest + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, UnreadableFileError):
            raise
        raise UnreadableFileError(
            f"can't read {file} ({getattr(error, 'strerror', None) or reason_of(error)})."
        ) from None
    if len(found) > largest:
        raise UnreadableFileError(f"{file} is larger than the limit of {largest:,} bytes.")
    return found


def read_yaml_values(file: Path) -> Any:
    """The plain data in a YAML file; tags that would build objects, anchors and aliases are refused."""
    loader = None
    try:
        loader = _PlainLoader(read_bytes(file, LARGEST_YAML).decode("utf-8"))
        found = loader.get_single_data()
    except UnreadableFileError:
        raise
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
        AttributeError,
        TypeError,
        LookupError,
        OverflowError,
    ) as error:
        # The constructors of YAML's dates, numbers and sets raise whatever Python raises.
        raise UnreadableFileError(f"{file} is not valid YAML ({_place_of(error)}).") from None
    finally:
        if loader is not None:
            loader.dispose()
    _check_numbers(found, file)
    return found


def read_json_values(file: Path) -> Any:
    """The plain data in a JSON file."""
    return parse_json(read_bytes(file, LARGEST_JSON), str(file))


def read_json_lines(file: Path) -> list[Any]:
    """The plain data in each line; a last line without a newline is still being written and skipped."""
    content = read_bytes(file, LARGEST_JSON)
    _check_bounds(content, str(file))
    if content.count(b"\n") > MOST_LINES:
        raise UnreadableFileError(f"{file} has more than the limit of {MOST_LINES:,} lines.")
    lines = content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]
    return [parse_json(line, f"line {number} of {file}") for number, line in enumerate(lines, start=1)]


def parse_json(content: bytes, what: str) -> Any:
    """The plain data in JSON text; errors call it `what`."""
    _check_bounds(content, what)
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{what} is not valid JSON ({reason_of(error)}).") from None
    level = [found]
    for _ in range(DEEPEST_JSON):
        level = [item for value in level for item in _items(value) if isinstance(item, dict | list)]
    if level:
        raise UnreadableFileError(f"{what} is nested too deeply.")
    return found


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _place_of(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {in_one_line(error.problem, 120)}"
    return reason_of(error)


def _check_numbers(value: Any, file: Path) -> None:
    """Raise UnreadableFileError for an integer too large to be printed, such as YAML's 1:1:1..."""
    if isinstance(value, dict | list | tuple | set):
        for item in [*value, *(value.values() if isinstance(value, dict) else ())]:
            _check_numbers(item, file)
    elif isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise UnreadableFileError(f"{file} has a number above the limit of {LARGEST_WHOLE:,}.")


def _check_bounds(content: bytes, what: str) -> None:
    if len(content) > LARGEST_FOREIGN_JSON and not content.isascii():
        raise UnreadableFileError(
            f"{what} is larger than {LARGEST_FOREIGN_JSON:,} bytes, and not plain ASCII."
        )
    if sum(content.count(mark) for mark in (b"[", b"{", b",", b":")) > MOST_VALUES:
        raise UnreadableFileError(f"{what} has more than the limit of {MOST_VALUES:,} values.")
