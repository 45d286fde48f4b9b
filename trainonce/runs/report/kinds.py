"""Kinds of plain values: each check takes a value and where it was found, and refuses any other kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from trainonce.errors import TrainonceError
from trainonce.messages.plain_text import in_one_line

LARGEST_NUMBER = 1e100
MOST_NAMES = 1_000
"""Of settings, or of facts about one thing."""

Check = Callable[[Any, str], None]
"""Takes a value and where it was found, raises WrongKindError if it is not of that kind."""


class WrongKindError(TrainonceError, ValueError):
    """A value of another kind than its place asks for."""


def number(value: Any, where: str) -> None:
    """A number; NaN and infinities are what a diverged run measures."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(value, where, "a number")
    if not (isinstance(value, float) and not math.isfinite(value)) and abs(value) > LARGEST_NUMBER:
        raise _refuse("too large", where, "a number")


def finite(value: Any, where: str) -> None:
    """A number that is neither NaN nor infinite."""
    number(value, where)
    if not math.isfinite(value):
        raise _refuse(value, where, "a finite number")


def whole(least: int = 0, most: int = 2**63) -> Check:
    """An integer in a range."""

    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _refuse(value, where, f"an integer from {least} to {most}")

    return check


def text(value: Any, where: str) -> None:
    """Printable text in one line."""
    if not isinstance(value, str) or not value.isprintable():
        raise _refuse(value, where, "one line of text")


def optional(check: Check) -> Check:
    """Nothing, or a value of that kind."""
    return lambda value, where: None if value is None else check(value, where)


def listed(check: Check, most: int = 2**31) -> Check:
    """A list of such values."""

    def check_all(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) > most:
            raise _refuse(value, where, f"a list of at most {most}")
        for index, item in enumerate(value):
            check(item, f"{where}[{index}]")

    return check_all


def named(check: Check, most: int = 2**31) -> Check:
    """Any names with such values."""

    def check_all(value: Any, where: str) -> None:
        if not isinstance(value, dict) or len(value) > most:
            raise _refuse(value, where, f"at most {most} names with values")
        for name, item in value.items():
            text(name, f"a name in {where}")
            check(item, f"{where}.{in_one_line(name, 40)}")

    return check_all


def fields(known: Mapping[str, Check], needed: str = "") -> Check:
    """A dict whose known names have values of their kind; other names, if not too many, may have any."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict) or len(value) > MOST_NAMES:
            raise _refuse(value, where, f"at most {MOST_NAMES} names with values")
        for name in needed.split():
            if name not in value:
                raise WrongKindError(f"{in_one_line(where, 80)} has no {name}.")
        for name in known.keys() & value.keys():
            known[name](value[name], f"{where}.{name}")

    return check


def anything(value: Any, where: str) -> None:
    """Any value: it is shown as text."""


def _refuse(value: Any, where: str, wanted: str) -> WrongKindError:
    is_short = isinstance(value, str | float | bool | None)
    found = in_one_line(repr(value)[:200], 40) if is_short else type(value).__name__
    return WrongKindError(f"{in_one_line(where, 80)} is {found}, not {wanted}.")
