"""The curves of a study.

Takes finished runs, gives accuracy and scaled FLOPs regulariser by epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.training.summary import Results

ACCURACY = "accuracy under the mask, %"
COLUMNS = ("contender", "seed", "quantity", "epoch", "value")
REGULARISER = "FLOPs regulariser, scaled to 0..1"


@dataclass(frozen=True, slots=True)
class Curve:
    """One quantity of one run."""

    contender: str
    seed: int
    quantity: str
    points: tuple[tuple[float, float], ...]
    """Epoch and value."""

    def rows(self) -> Iterator[tuple[object, ...]]:
        """One line of the data for each point."""
        for x, y in self.points:
            yield self.contender, self.seed, self.quantity, f"{x:.4g}", f"{y:.4f}"


def curves_of(results: Mapping[str, Results]) -> list[Curve]:
    """All curves of some contenders' runs."""
    return [curve for name, runs in results.items() for run in runs for curve in _of_run(name, run)]


def _of_run(name: str, run: Mapping[str, Any]) -> Iterator[Curve]:
    seed, keep = run["configuration"]["seed"], run["configuration"]["keep_flops"]
    masked = run.get("masked_accuracies") or [None] * len(run["log"])
    accuracies = [
        line["accuracy"] if under is None else under for line, under in zip(run["log"], masked, strict=True)
    ]
    yield Curve(
        name,
        seed,
        ACCURACY,
        tuple((line["epoch"], value) for line, value in zip(run["log"], accuracies, strict=True)),
    )
    if run.get("penalties"):
        # The whole model's penalty is log(1 / p): scaled by it, every budget begins at 1.
        whole = math.log(1 / keep)
        yield Curve(
            name,
            seed,
            REGULARISER,
            ((0.0, 1.0), *((epoch, value / whole) for epoch, value in run["penalties"])),
        )
