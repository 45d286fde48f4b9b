"""Limits of settings: dataclass fields that carry their type, range and help text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from trainonce.errors import SettingError
from trainonce.messages.plain_text import LARGEST_WHOLE, shorten


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a setting is for, and which values it accepts."""

    help: str
    kind: type
    optional: bool = False
    """Whether None is allowed."""

    several: bool = False
    """Whether it is a list."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()

    def describe(self) -> str:
        """The range in words, such as `a number above 0 and at most 1`."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        noun = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}[self.kind]
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (
                ("above", self.above),
                ("at least", self.at_least),
                ("below", self.below),
                ("at most", self.at_most),
            )
            if bound is not None
        ]
        words = " ".join([noun, " and ".join(bounds)]).strip()
        if self.several:
            words = f"a list, each item {words}"
        return f"{words}, or none" if self.optional else words

    def allows(self, value: Any) -> bool:
        """Whether a value has the right type and is in range."""
        if self.kind is bool or isinstance(value, bool):
            return self.kind is bool and isinstance(value, bool)
        if self.kind is str:
            return isinstance(value, str) and (not self.choices or value in self.choices)
        if not isinstance(value, int if self.kind is int else int | float):
            return False
        if abs(value) > LARGEST_WHOLE if isinstance(value, int) else not math.isfinite(value):
            return False
        return not (
            (self.above is not None and value <= self.above)
            or (self.at_least is not None and value < self.at_least)
            or (self.below is not None and value >= self.below)
            or (self.at_most is not None and value > self.at_most)
        )

    def suggest(self, value: Any) -> str:
        """` Did you mean 0.45?` for a fraction written as `45`, `45%` or `0,45`, or a number in quotes."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return ""
        is_share = 1 in (self.at_most, self.below) and self.kind is float
        if not is_share and (self.kind not in (int, float) or not isinstance(value, str)):
            return ""
        text = shorten(value).strip("'\" ").replace(",", ".")
        try:
            number = float(text.rstrip("% "))
        except ValueError:
            return ""
        meant = number / 100 if is_share and (text.endswith("%") or number >= 2) else number
        if self.kind is int and meant.is_integer():
            meant = int(meant)
        return f" Did you mean {meant:g}?" if self.allows(meant) else ""


def setting(default: Any, help: str, kind: type, **limits: Any) -> Any:
    """A dataclass field with its default, help text and limits."""
    limits = {"optional": default is None} | limits
    return field(default=default, metadata={"limits": Limits(help=help, kind=kind, **limits)})


def dependent_setting(help: str, kind: type, **limits: Any) -> Any:
    """A field whose default depends on others: the class replaces None when it is made."""
    return setting(None, help, kind, optional=False, **limits)


def limits_of(settings: Any) -> dict[str, Limits]:
    """The limits of every field of a settings class or instance."""
    return {found.name: found.metadata["limits"] for found in fields(settings) if "limits" in found.metadata}


def defaults_of(settings: type) -> dict[str, Any]:
    """The default of every field, as an object made without arguments has it."""
    plain = settings()
    return {found.name: getattr(plain, found.name) for found in fields(settings)}


def check_fields(settings: Any) -> None:
    """Raise SettingError for the first value that is not allowed."""
    for name, limits in limits_of(settings).items():
        value = getattr(settings, name)
        if value is None and limits.optional:
            continue
        right = (
            isinstance(value, tuple) and all(limits.allows(item) for item in value)
            if limits.several
            else limits.allows(value)
        )
        if not right:
            raise SettingError(
                f"{name} must be {limits.describe()}, got {shorten(value)}.{limits.suggest(value)}"
            )
