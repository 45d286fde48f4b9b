"""What a command prints to stdout: tables, lines, JSON."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from rich.console import Console, RenderableType

from trainonce.messages.plain_text import in_one_line


class _Terminal(Console):
    """A console that leaves a closed pipe to the caller; rich would exit the process itself."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


def show(what: RenderableType) -> None:
    """Print a table."""
    _Terminal().print(what)


def say(line: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{in_one_line(line, 10_000)}\n")


def show_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON; NaN and infinities, which JSON doesn't have, become null."""
    sys.stdout.write(json.dumps(finite(value), indent=indent, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """Plain data with None where a number is not finite."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
