"""Before and after, as people read it.

Takes the facts of a run, gives rows of label, before, after and change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity before and after."""

    label: str
    before: str
    after: str
    change: str
    share: float | None
    """After in relation to before, for a bar; None where there is none."""
    note: str
    is_worse: bool = False


def figures_of(report: Mapping[str, Any]) -> list[Figure]:
    """Accuracy, FLOPs, parameters, file size and latency, as far as they are known."""
    before, after = report.get("before") or {}, report.get("after") or {}
    found = [_accuracy(report, after)]
    for key, label, show, note in (
        ("macs", "FLOPs", lambda value: in_units(value), "multiply-adds of one sample"),
        ("parameters", "Parameters", lambda value: in_units(value), ""),
        ("bytes", "Weights on disk", lambda value: in_bytes(value), ""),
    ):
        if before.get(key) and after.get(key):
            share = after[key] / before[key]
            found.append(
                Figure(
                    label, show(before[key]), show(after[key]), percent_change(share), share, note, share > 1
                )
            )
    one, other = before.get("latency_ms"), after.get("latency_ms")
    if one and other and one["median"] > 0:
        share = other["median"] / one["median"]
        note = f"batch 1, median; fastest and slowest tenth {other['low']:.2f} and {other['high']:.2f} ms"
        found.append(
            Figure(
                "Latency",
                f"{one['median']:.2f} ms",
                f"{other['median']:.2f} ms",
                percent_change(share),
                share,
                note,
                share > 1,
            )
        )
    return [figure for figure in found if figure is not None]


def in_units(count: float) -> str:
    """A count such as `1.13 M`."""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return str(int(count))


def in_bytes(count: float) -> str:
    """A size such as `1.13 MB`."""
    return f"{in_units(count)}B" if count >= 1000 else f"{int(count)} B"


def percent_change(share: float) -> str:
    """A ratio as a change: 0.45 is `-55.0 %`."""
    return f"{100 * (share - 1):+.1f} %"


def _accuracy(report: Mapping[str, Any], after: Mapping[str, Any]) -> Figure | None:
    if after.get("top1") is None:
        return None
    baseline = (report.get("baseline") or {}).get("top1")
    parts = [f"top-5 {after['top5']:.2f} %"] if after.get("top5") is not None else []
    parts.append(
        "before: the whole model trained the same way"
        if baseline is not None
        else "no whole model to compare with"
    )
    before = "" if baseline is None else f"{baseline:.2f} %"
    change = "" if baseline is None else f"{after['top1'] - baseline:+.2f} points"
    is_worse = baseline is not None and after["top1"] < baseline - 1
    return Figure("Top-1", before, f"{after['top1']:.2f} %", change, None, "; ".join(parts), is_worse)
