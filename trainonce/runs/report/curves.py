"""The curves of a run: takes its history, gives the charts of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from trainonce.runs.report.charts import Course, Level, Series, Span, line_chart
from trainonce.runs.report.live import PHASES
from trainonce.runs.report.outline import Report, cut_epochs, top1_of
from trainonce.runs.report.scores import Score, scores_of


def course_of(report: Report) -> Course:
    """The run's phases and cuts, in epochs."""
    return Course(phase_spans(report), cut_epochs(report))


def phase_spans(report: Report) -> list[Span]:
    """The phases in epochs, from the schedule or, while the run trains, from the epochs seen."""
    history, schedule = report["history"], report.get("schedule")
    phases = (schedule or {}).get("phases") or {}
    if schedule and phases:
        per_epoch = schedule["steps_per_epoch"]
        starts = [("warm-up", 0)]
        starts += [(name, phases[name]) for name in PHASES if phases.get(name) is not None]
        ends = [start for _, start in starts[1:]] + [schedule["total_steps"]]
        return [
            Span(name, start / per_epoch, end / per_epoch)
            for (name, start), end in zip(starts, ends, strict=True)
            if end > start
        ]
    spans: list[Span] = []
    for epoch, record in enumerate(history, start=1):
        phase = record.get("phase")
        if phase not in PHASES:
            continue
        if spans and spans[-1].phase == phase:
            spans[-1] = Span(phase, spans[-1].start, epoch)
        else:
            spans.append(Span(phase, epoch - 1, epoch))
    return spans


def main_charts(report: Report, course: Course) -> list[Markup]:
    """Accuracy and loss, the dense run's beside the small one's."""
    history, baseline = report["history"], report.get("baseline") or {}
    dense, top1 = baseline.get("history") or [], top1_of(baseline)
    accuracy = [Series("small", column(history, "top1"), "accent")]
    levels = []
    if any(record.get("top1") is not None for record in dense):
        accuracy.insert(0, Series("dense", column(dense, "top1"), "second"))
    elif top1 is not None:
        levels = [Level(f"dense {top1:.2f} %", top1)]
    losses = [
        Series("training", column(history, "loss"), "third"),
        Series("validation", column(history, "validation_loss"), "accent"),
    ]
    if any(record.get("validation_loss") is not None for record in dense):
        losses.insert(0, Series("dense validation", column(dense, "validation_loss"), "second"))
    charts = [
        line_chart("Top-1 accuracy", accuracy, course, levels=levels, unit="%", skips_start=True),
        *(_metric_chart(score, history, dense, course) for score in scores_of(report.get("after"))),
        line_chart("Loss", losses, course, skips_start=True),
    ]
    return [chart for chart in charts if chart]


def _metric_chart(
    score: Score,
    history: Sequence[Mapping[str, Any]],
    dense: Sequence[Mapping[str, Any]],
    course: Course,
) -> Markup:
    both = [[record.get("metrics") or {} for record in records] for records in (history, dense)]
    series = [Series("small", column(both[0], score.name), "accent")]
    if any(record.get(score.name) is not None for record in both[1]):
        series.insert(0, Series("dense", column(both[1], score.name), "second"))
    return line_chart(score.kind.label, series, course, unit=score.kind.unit, skips_start=True)


def more_charts(report: Report, course: Course) -> list[Markup]:
    """What is kept, what the controller learns, and the learning rate."""
    history, budget = report["history"], report["config"].get("keep_flops")
    charts = []
    if any(record.get("keep_flops") not in (None, 1) for record in history):
        levels = [] if budget is None else [Level(f"budget {100 * budget:g} %", 100 * budget)]
        kept = Series("kept", column(history, "keep_flops", 100), "third")
        charts.append(line_chart("FLOPs kept", [kept], course, levels=levels, unit="%", holds=(100.0,)))
        charts.append(
            line_chart("Controller loss", [Series("controller", _while_searching(history), "fourth")], course)
        )
    charts.append(
        line_chart("Learning rate", [Series("learning rate", column(history, "lr"), "second")], course)
    )
    return [chart for chart in charts if chart]


def column(history: Sequence[Mapping[str, Any]], name: str, scale: float = 1.0) -> list[float | None]:
    """One number of every record."""
    return [None if record.get(name) is None else scale * record[name] for record in history]


def _while_searching(history: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """The controller's loss until it stops learning; afterwards its last value would only be repeated."""
    found: list[float | None] = []
    for index, record in enumerate(history):
        loss = record.get("controller_loss")
        is_new = index == 0 or loss != history[index - 1].get("controller_loss")
        found.append(loss if is_new or record.get("phase") == "search" else None)
    return found
