"""The report page: takes the facts of a run, gives one HTML text that needs no other file and no network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.charts import Level, Series, Span, line_chart
from trainonce.runs.report.figures import figures_of
from trainonce.runs.report.live import PHASES, in_minutes
from trainonce.runs.report.network import heat_map, layer_rows
from trainonce.runs.report.run_table import verdict
from trainonce.runs.report.table import generalise_reason

_ENVIRONMENT = Environment(
    loader=PackageLoader("trainonce.runs.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_page(report: Mapping[str, Any]) -> str:
    """The page of a finished run, or of one that still trains."""
    config, history = report["config"], report["history"]
    spans = phase_spans(report)
    layers = report.get("layers") or []
    kept = [layer for layer in layers if layer["kept_because"] is not None]
    return _ENVIRONMENT.get_template("page.html").render(
        title=in_one_line(f"{config.get('model', 'model')} on {config.get('data', 'data')}", 300),
        finished=report.get("before") is not None,
        subtitle=_subtitle(report),
        figures=figures_of(report),
        verdict=verdict(report),
        spans=spans,
        charts=_charts(report, spans),
        layers=layer_rows(layers),
        heat=heat_map(history),
        heat_names=list(next((record["alive"] for record in history if record.get("alive")), {})),
        num_epochs=len(history),
        reasons=Counter(generalise_reason(layer["kept_because"]) for layer in kept).most_common(),
        kept=kept,
        config=_shown(config),
        environment=_shown(report["environment"]),
        counter=report.get("counter") or "",
    )


def phase_spans(report: Mapping[str, Any]) -> list[Span]:
    """The phases in epochs, from the schedule or, while the run trains, from the epochs seen."""
    history, schedule = report["history"], report.get("schedule")
    phases = (schedule or {}).get("phases") or {}
    if schedule and phases:
        per_epoch = schedule["steps_per_epoch"]
        starts = [
            ("warm-up", 0),
            *((name, phases[name]) for name in ("search", "settle", "small") if phases.get(name) is not None),
        ]
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


def _charts(report: Mapping[str, Any], spans: Sequence[Span]) -> list[Markup]:
    history, config = report["history"], report["config"]

    def column(name: str, scale: float = 1.0) -> list[float | None]:
        return [None if record.get(name) is None else scale * record[name] for record in history]

    baseline = (report.get("baseline") or {}).get("top1")
    accuracy_levels = (
        []
        if baseline is None or not math.isfinite(baseline)
        else [Level(f"whole model {baseline:.2f} %", baseline)]
    )
    charts = [
        line_chart(
            "Top-1 accuracy",
            [Series("top-1", column("top1"), "accent")],
            spans,
            levels=accuracy_levels,
            unit="%",
            skips_start=True,
        ),
        line_chart(
            "Loss",
            [
                Series("training", column("loss"), "second"),
                Series("validation", column("validation_loss"), "accent"),
            ],
            spans,
            skips_start=True,
        ),
    ]
    if any(record.get("keep_flops") not in (None, 1) for record in history):
        budget = config.get("keep_flops")
        levels = [] if budget is None else [Level(f"budget {100 * budget:g} %", 100 * budget)]
        kept = Series("kept", column("keep_flops", 100), "third")
        charts.append(line_chart("FLOPs kept", [kept], spans, levels=levels, unit="%", holds=(100.0,)))
        charts.append(
            line_chart("Controller loss", [Series("controller", _while_searching(history), "fourth")], spans)
        )
    charts.append(line_chart("Learning rate", [Series("learning rate", column("lr"), "second")], spans))
    return [chart for chart in charts if chart]


def _while_searching(history: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """The controller's loss until it stops learning; afterwards its last value would only be repeated."""
    found: list[float | None] = []
    for index, record in enumerate(history):
        loss = record.get("controller_loss")
        is_new = index == 0 or loss != history[index - 1].get("controller_loss")
        found.append(loss if is_new or record.get("phase") == "search" else None)
    return found


def _subtitle(report: Mapping[str, Any]) -> str:
    config = report["config"]
    budget = config.get("keep_flops") if config.get("keep_flops") is not None else config.get("keep_params")
    what = "FLOPs" if config.get("keep_flops") is not None else "parameters"
    parts = [f"{len(report['history'])} epochs", f"seed {_short(config.get('seed', '?'))}"]
    if report.get("seconds") is not None:
        parts.insert(1, in_minutes(report["seconds"]))
    if budget is not None and budget < 1:
        parts.insert(0, f"asked to keep {100 * budget:g} % of the {what}")
    return ", ".join(parts)


def _shown(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values as `config.yaml` has them."""
    return [
        (_short(name), _short(", ".join(map(_short, value))) if isinstance(value, list) else _short(value))
        for name, value in values.items()
        if value not in (None, [])
    ]


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else in_one_line(value, 300)
