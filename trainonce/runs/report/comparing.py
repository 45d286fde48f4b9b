"""Several runs side by side: takes their facts, gives one row each and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.outline import (
    Report,
    change_from,
    is_dense,
    noun_of,
    num_samples_of,
    share_kept,
    speedup_of,
    title_of,
    top1_of,
)
from trainonce.runs.report.scores import TOP1, Kind, kind_of, scores_of, shared_score
from trainonce.runs.report.uncertainty import Interval, accuracy_interval, signed_count
from trainonce.runs.report.values import shown_value
from trainonce.structure.table import in_units

NOT_A_CHOICE = frozenset(
    ("data_dir", "workers", "download", "save_minutes", "save_epochs", "keep_checkpoints")
)
"""Settings that don't change what a run computes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run among several."""

    number: int
    name: str
    title: str
    macs: int | None
    kind: Kind
    """What `accuracy` is."""
    accuracy: float | None
    """Top-1 in percent, or the metric that all runs have; None if they can't be compared."""
    num_samples: int | None
    interval: Interval | None
    flops: str
    kept: str
    """Of the dense model's FLOPs."""
    score: str
    """Such as `94.72 % top-1` or `MAE 0.1675`."""
    change: str
    """From the dense run, such as `+0.28 points`; empty if there is none."""
    count: str
    """The same in samples, such as `-7 images of 360`."""
    is_noise: bool
    latency: str
    speedup: str
    is_dense: bool


def compare_runs(named: Sequence[tuple[str, Report]]) -> list[Row]:
    """One row per run, in their order; the first dense run of the same model and data is compared with."""
    reports = [report for _, report in named]
    name = metric_of(reports)
    return [
        _row(number, in_one_line(label, 80), report, _dense_for(report, reports), name)
        for number, (label, report) in enumerate(named, start=1)
    ]


def metric_of(reports: Sequence[Report]) -> str | None:
    """The metric that runs without top-1 are compared by; None for top-1, or if they have none in common."""
    results = [report.get("after") for report in reports]
    return None if any(top1_of(after) is not None for after in results) else shared_score(results)


def differing_settings(reports: Sequence[Report]) -> list[tuple[str, list[str]]]:
    """Each setting that is not the same in all runs, with its value in each."""
    configs = [report["config"] for report in reports]
    names = dict.fromkeys(name for config in configs for name in config if name not in NOT_A_CHOICE)
    found = [(name, [shown_value(config.get(name)) for config in configs]) for name in names]
    return [(in_one_line(name, 60), values) for name, values in found if len(set(values)) > 1]


def _dense_for(report: Report, others: Sequence[Report]) -> Mapping[str, Any] | None:
    """The dense run's scores to compare with: of a run beside it, else those that the report has kept."""
    if is_dense(report):
        return None
    for other in others:
        if is_dense(other) and title_of(other) == title_of(report):
            return other.get("after")
    return report.get("baseline")


def _row(number: int, name: str, report: Report, dense: Mapping[str, Any] | None, metric: str | None) -> Row:
    after = report.get("after") or {}
    top1, samples, macs = top1_of(after), num_samples_of(report), after.get("macs")
    kept, speedup, change = share_kept(report, "macs"), speedup_of(report), change_from(report, dense)
    latency, kind = after.get("latency_ms"), TOP1 if metric is None else kind_of(metric)
    return Row(
        number=number,
        name=name,
        title=title_of(report),
        macs=macs,
        kind=kind,
        accuracy=top1 if metric is None else _value(after, metric),
        num_samples=samples,
        interval=accuracy_interval(top1, samples) if top1 is not None and samples else None,
        flops="-" if macs is None else in_units(macs),
        kept="-" if kept is None else f"{100 * kept:.1f} %",
        score=_first_score(after) if top1 is None else f"{top1:.2f} % top-1",
        change=_metric_change(after, dense, metric) if change is None else f"{change.points:+.2f} points",
        count="" if change is None else signed_count(change, noun_of(report)),
        is_noise=change is not None and change.is_noise,
        latency="-" if not latency else f"{latency['median']:.2f} ms",
        # A dense run's two models are the same one, timed twice.
        speedup="-" if speedup is None or is_dense(report) else f"{speedup:.2f}x",
        is_dense=is_dense(report),
    )


def _value(scores: Mapping[str, Any] | None, metric: str) -> float | None:
    return next((score.value for score in scores_of(scores) if score.name == metric), None)


def _metric_change(after: Mapping[str, Any], dense: Mapping[str, Any] | None, metric: str | None) -> str:
    if metric is None:
        return ""
    mine, theirs = _value(after, metric), _value(dense, metric)
    return "" if mine is None or theirs is None else kind_of(metric).change(mine, theirs)


def _first_score(after: Mapping[str, Any]) -> str:
    """The first metric of a run that has no top-1, with its name."""
    scores = scores_of(after)
    return str(scores[0]) if scores else "-"
