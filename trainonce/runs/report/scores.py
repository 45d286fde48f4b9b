"""Scores other than top-1 as people read them: takes the metrics of a record, gives labels and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainonce.messages.plain_text import in_one_line

MOST_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Kind:
    """What a metric is called, and how it is read."""

    label: str
    unit: str = ""
    is_better_higher: bool | None = None
    """None: not known, as for a metric of the user's own."""

    def shown(self, value: float) -> str:
        """Such as `71.23 %` or `0.01234`."""
        return f"{value:.2f} %" if self.unit == "%" else f"{value:.4g}"

    def change(self, value: float, before: float) -> str:
        """Such as `-1.20 points`."""
        return f"{value - before:+.2f} points" if self.unit == "%" else f"{value - before:+.4g}"


TOP1 = Kind("Top-1", "%", True)

KINDS = {
    "mean_iou": Kind("Mean IoU", "%", True),
    "pixel_accuracy": Kind("Pixel accuracy", "%", True),
    "token_accuracy": Kind("Token accuracy", "%", True),
    "mean_ap": Kind("Mean AP", "%", True),
    "mae": Kind("MAE", "", False),
    "r2": Kind("R2", "", True),
}
"""Those that trainonce measures itself."""


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of a model."""

    name: str
    kind: Kind
    value: float

    def __str__(self) -> str:
        """Such as `mean IoU 71.23 %`."""
        label = self.kind.label
        words = label[0].lower() + label[1:] if label[:1].isupper() and label[1:2].islower() else label
        return f"{words} {self.kind.shown(self.value)}"


def scores_of(record: Mapping[str, Any] | None) -> list[Score]:
    """The first few metrics that are numbers, the most important first."""
    found = ((record or {}).get("metrics") or {}).items()
    known = [(name, value) for name, value in found if value is not None and math.isfinite(value)]
    return [Score(name, kind_of(name), value) for name, value in known[:MOST_SHOWN]]


def kind_of(name: str) -> Kind:
    """What a metric of this name is."""
    return KINDS.get(name) or Kind(in_one_line(name, 40) or "metric")


def shared_score(records: Sequence[Mapping[str, Any] | None]) -> str | None:
    """The metric by which all of these can be compared: the first of each, if that is the same one."""
    firsts = {scores[0].name if scores else None for scores in map(scores_of, records)}
    return firsts.pop() if len(firsts) == 1 else None


def in_words(scores: list[Score]) -> str:
    """Such as `mean IoU 71.23 % and pixel accuracy 93.10 %`."""
    words = [str(score) for score in scores]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
