"""The report page: takes the facts of a run, gives one HTML text that needs no other file and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainonce.runs.report.costs import cost_table
from trainonce.runs.report.curves import course_of, main_charts, more_charts
from trainonce.runs.report.figures import figures_of
from trainonce.runs.report.int8 import int8_table
from trainonce.runs.report.live import in_minutes
from trainonce.runs.report.network import heat_map, layer_rows
from trainonce.runs.report.outline import Report, is_dense, is_finished, title_of
from trainonce.runs.report.rendering import render
from trainonce.runs.report.uncertainty import counted
from trainonce.runs.report.usage import usage_of
from trainonce.runs.report.values import shown_value, shown_values, split_settings
from trainonce.runs.report.verdict import remarks_on, verdict_of
from trainonce.structure.partition import generalize_reason


def render_page(report: Report) -> str:
    """The page of a finished run, or of one that still trains."""
    history, layers = report["history"], report.get("layers") or []
    course = course_of(report)
    kept = [layer for layer in layers if layer["kept_because"] is not None]
    changed, settings = split_settings(report["config"], report.get("changed"))
    return render(
        "page.html",
        title=title_of(report),
        is_finished=is_finished(report),
        subtitle=_subtitle(report),
        verdict=verdict_of(report),
        wants_dense=is_finished(report) and not is_dense(report) and not report.get("baseline"),
        is_fit="data" not in report["config"],
        figures=figures_of(report),
        remarks=remarks_on(report),
        spans=course.spans,
        cuts=_cuts_in_words(report, course.cuts),
        charts=main_charts(report, course),
        more_charts=more_charts(report, course),
        costs=cost_table(report.get("costs") or []),
        int8=int8_table(report.get("int8")),
        is_dense=is_dense(report),
        layers=layer_rows(layers),
        heat=heat_map(history),
        heat_names=list(next((record["alive"] for record in history if record.get("alive")), {})),
        num_epochs=len(history),
        reasons=Counter(generalize_reason(layer["kept_because"]) for layer in kept).most_common(),
        kept=kept,
        usage=usage_of(report),
        changed=changed,
        settings=settings,
        environment=shown_values(report["environment"]),
        start=report.get("start") or "",
        teacher=report.get("teacher") or "",
        counter=report.get("counter") or "",
    )


def _cuts_in_words(report: Report, epochs: Sequence[float]) -> str:
    if not epochs:
        return ""
    per_epoch = report["schedule"]["steps_per_epoch"]
    steps = [f"step {round(epoch * per_epoch):,} (epoch {epoch:.1f})" for epoch in epochs]
    if len(steps) == 1:
        return f"The model was cut once, at {steps[0]}."
    return f"The model was cut twice, first at {steps[0]} and then at {steps[-1]}."


def _subtitle(report: Report) -> str:
    config = report["config"]
    budget, what = config.get("keep_flops"), "FLOPs"
    if budget is None:
        budget, what = config.get("keep_params"), "parameters"
    parts = [counted(len(report["history"]), "epoch"), f"seed {shown_value(config.get('seed', '?'))}"]
    if report.get("seconds") is not None:
        parts.insert(1, in_minutes(report["seconds"]))
    if budget is not None and budget < 1:
        method = config.get("method", "default")
        by = "" if method == "default" else f" by the method {shown_value(method)}"
        parts.insert(0, f"budget: {100 * budget:g} % of the {what}{by}")
    return ", ".join(parts)
