"""What a value must be: its type and range, in words and checked; each wrong value is refused in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from trainonce.errors import SettingError, TrainonceError
from trainonce.messages.plain_text import LARGEST_WHOLE, shorten


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a setting is for, and which values it accepts."""

    kind: type
    help: str = ""
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
        words = f"{noun} {self._range()}".strip()
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

    def _range(self) -> str:
        """The bounds in words; those that nobody comes near are not mentioned."""
        above, at_least, below, at_most = (
            None if bound is None or abs(bound) > 2**53 else f"{bound:,}"
            for bound in (self.above, self.at_least, self.below, self.at_most)
        )
        if at_least and at_most:
            return f"from {at_least} to {at_most}"
        low = f"above {above}" if above else f"of at least {at_least}" if at_least else ""
        high = f"below {below}" if below else f"at most {at_most}" if at_most else ""
        return " and ".join(bound for bound in (low, high) if bound)

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


SEED = Limits(kind=int, at_least=-(2**63), at_most=2**63 - 1)
"""What torch takes as a seed."""


def check_value(
    name: str, value: object, limits: Limits, hint: str = "", *, error: type[TrainonceError] = SettingError
) -> None:
    """Raise an error unless an argument is within its limits; `hint` says what to do."""
    if not limits.allows(value) and not (value is None and limits.optional):
        advice = limits.suggest(value) or f" {hint}"
        raise error(f"{name} must be {limits.describe()}, got {shorten(value)}.{advice}".rstrip())
