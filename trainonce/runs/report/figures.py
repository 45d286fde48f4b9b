"""Before and after, as people read it: takes the facts of a run, gives rows of before, after and change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainonce.runs.report.outline import (
    SMALLEST_GAIN,
    Report,
    change_from,
    is_dense,
    noun_of,
    num_samples_of,
    speed_in_words,
    speedup_of,
    top1_of,
)
from trainonce.runs.report.scores import scores_of
from trainonce.runs.report.uncertainty import accuracy_interval, counted, interval_words, signed_count
from trainonce.structure.table import in_units


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity before and after."""

    label: str
    before: str
    after: str
    change: str
    share: float | None
    """After as a share of before, for a bar; None where there is none."""
    note: str
    is_worse: bool = False
    is_noise: bool = False
    """Whether the change is smaller than what chance explains."""


def figures_of(report: Report) -> list[Figure]:
    """Accuracy, other metrics, FLOPs, parameters, file size and latency, as far as they are known."""
    before, after = report.get("before") or {}, report.get("after") or {}
    found = [_accuracy(report, after), *_metrics(report, after)]
    for key, label, show, note in (
        ("macs", "FLOPs", in_units, "multiply-adds of one sample"),
        ("parameters", "Parameters", in_units, ""),
        ("bytes", "Size on disk", in_bytes, ""),
    ):
        if before.get(key) and after.get(key):
            share = after[key] / before[key]
            change = percent_change(share)
            found.append(
                Figure(label, show(before[key]), show(after[key]), change, share, note, share > 1, share == 1)
            )
    found.append(_latency(report))
    known = [figure for figure in found if figure is not None]
    if is_dense(report):
        # Before and after are the same model.
        return [replace(figure, before="", change="", share=None) for figure in known]
    return known


def in_bytes(count: float) -> str:
    """A size such as `1.13 MB`."""
    return f"{in_units(count)}B" if count >= 1000 else f"{int(count)} B"


def percent_change(share: float) -> str:
    """A ratio as a change: 0.45 is `-55.0 %`."""
    return f"{100 * (share - 1):+.1f} %"


def _accuracy(report: Report, after: Mapping[str, Any]) -> Figure | None:
    if after.get("top1") is None:
        return None
    baseline, samples = report.get("baseline") or {}, num_samples_of(report)
    top1, change = top1_of(after), change_from(report, baseline)
    shown = f"{after['top1']:.2f} %"
    parts, rest = [], [f"top-5 {after['top5']:.2f} %"] if after.get("top5") is not None else []
    if change is None:
        if top1 is not None and samples is not None:
            interval = interval_words(accuracy_interval(top1, samples))
            parts.append(f"{interval} on {counted(samples, noun_of(report))}")
        if not is_dense(report):
            parts.append("no dense run to compare with")
        return Figure("Top-1", "", shown, "", None, "; ".join(parts + rest))
    if count := signed_count(change, noun_of(report)):
        parts.append(count)
    if change.interval is not None:
        parts.append(f"{interval_words(change.interval, signed=True)} points")
    worse = change.points < 0 and not change.is_noise if change.interval else change.points < -1
    return Figure(
        label="Top-1",
        before=f"dense {baseline['top1']:.2f} %",
        after=shown,
        change=f"{change.points:+.2f} points",
        share=None,
        note="; ".join(parts + rest),
        is_worse=worse,
        is_noise=change.is_noise,
    )


def _metrics(report: Report, after: Mapping[str, Any]) -> list[Figure]:
    """One row per metric, beside the dense run's."""
    dense = {score.name: score.value for score in scores_of(report.get("baseline"))}
    samples, found = num_samples_of(report), []
    note = "" if samples is None else f"on {counted(samples, noun_of(report))}"
    for score in scores_of(after):
        kind, before = score.kind, dense.get(score.name)
        worse = False
        if before is not None and kind.is_better_higher is not None:
            worse = score.value < before if kind.is_better_higher else score.value > before
        found.append(
            Figure(
                label=kind.label,
                before="" if before is None else f"dense {kind.shown(before)}",
                after=kind.shown(score.value),
                change="" if before is None else kind.change(score.value, before),
                share=None,
                note=note,
                is_worse=worse,
            )
        )
    return found


def _latency(report: Report) -> Figure | None:
    speedup = speedup_of(report)
    if speedup is None:
        return None
    before, after = report["before"]["latency_ms"], report["after"]["latency_ms"]
    return Figure(
        label="Latency",
        before=f"{before['median']:.2f} ms",
        after=f"{after['median']:.2f} ms",
        change=speed_in_words(speedup),
        share=1 / speedup,
        note=f"median of single samples; 80 % of calls took {after['low']:.2f} to {after['high']:.2f} ms",
        is_worse=speedup <= 1 / SMALLEST_GAIN,
        is_noise=1 / SMALLEST_GAIN < speedup < SMALLEST_GAIN,
    )
