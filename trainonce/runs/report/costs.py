"""Where the work goes: takes FLOPs and milliseconds per layer, gives the rows of a table that adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from trainonce.structure.table import in_units

MOST_ROWS = 16
"""Longer tables show the costliest layers first, and fold the rest."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Of one layer before and after, and how long its bars are, in percent of the longest."""

    before: str
    after: str
    before_share: float
    after_share: float

    @property
    def is_any(self) -> bool:
        """Whether there is anything to show."""
        return self.before_share > 0 or self.after_share > 0


@dataclass(frozen=True, slots=True)
class CostRow:
    """One layer, or several of one class that have no multiply-adds."""

    name: Markup | str
    kind: str
    flops: Amount
    milliseconds: Amount | None


@dataclass(frozen=True, slots=True)
class CostTable:
    """All layers; `total` is their sum."""

    first: list[CostRow]
    rest: list[CostRow]
    total: CostRow


def cost_table(costs: Sequence[Mapping[str, Any]]) -> CostTable | None:
    """The table of a run's layers; None if nothing is known about them."""
    if not costs:
        return None
    total = {
        "name": "sum",
        "kind": "",
        "count": 1,
        **{which: {"macs": _sum(costs, which, "macs"), "ms": _sum(costs, which, "ms")} for which in BOTH},
    }
    longest = {
        unit: max((cost[which].get(unit) or 0 for cost in costs for which in BOTH), default=0)
        for unit in ("macs", "ms")
    }
    order = range(len(costs))
    if len(costs) > MOST_ROWS:
        # By milliseconds, which are what a user waits for; by FLOPs where there are none.
        unit = "ms" if longest["ms"] else "macs"
        order = sorted(order, key=lambda index: -(costs[index]["before"].get(unit) or 0))
    rows = [_row(costs[index], longest) for index in order]
    sums = {unit: max(total[which][unit] or 0 for which in BOTH) for unit in ("macs", "ms")}
    return CostTable(rows[:MOST_ROWS], rows[MOST_ROWS:], _row(total, sums))


BOTH = ("before", "after")


def _sum(costs: Sequence[Mapping[str, Any]], which: str, unit: str) -> Any:
    known = [cost[which].get(unit) for cost in costs]
    return None if any(value is None for value in known) else sum(known)


def _row(cost: Mapping[str, Any], longest: Mapping[str, float]) -> CostRow:
    name, kind = cost["name"], cost["kind"]
    if not name:
        name, kind = (f"{cost['count']} x {kind}" if cost["count"] > 1 else kind), ""
    times = [cost[which].get("ms") for which in BOTH]
    return CostRow(
        # A narrow page breaks names after their dots.
        name=Markup(".<wbr>").join(name.split(".")),
        kind=kind,
        flops=_amount([cost[which]["macs"] for which in BOTH], longest["macs"], in_units),
        milliseconds=None if None in times else _amount(times, longest["ms"], "{:.3f}".format),
    )


def _amount(values: Sequence[float], longest: float, show: Any) -> Amount:
    shares = [min(100.0, max(0.0, 100 * value / longest)) if longest else 0.0 for value in values]
    return Amount(show(values[0]), show(values[1]), round(shares[0], 1), round(shares[1], 1))
