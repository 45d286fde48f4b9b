"""The comparison page: takes the facts of several runs, gives one HTML text with all of them on one chart."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from trainonce.runs.report.charts import Series, line_chart
from trainonce.runs.report.comparing import Row, compare_runs, differing_settings, metric_of
from trainonce.runs.report.curves import column
from trainonce.runs.report.outline import Report
from trainonce.runs.report.rendering import render
from trainonce.runs.report.scatter import accuracy_over_flops, color_of
from trainonce.runs.report.scores import TOP1
from trainonce.runs.report.uncertainty import accuracy_change


def render_comparison(named: Sequence[tuple[str, Report]], links: Sequence[str]) -> str:
    """The page of several runs, each with a name and a link to its own page."""
    rows = compare_runs(named)
    reports = [report for _, report in named]
    charts = [accuracy_over_flops(rows), _curves(rows, reports)]
    return render(
        "comparison.html",
        title=_title(rows),
        verdict=_verdict(rows),
        rows=list(zip(rows, links, map(color_of, rows), strict=True)),
        charts=[chart for chart in charts if chart],
        has_intervals=any(row.interval is not None for row in rows),
        differing=differing_settings(reports),
    )


def _curves(rows: Sequence[Row], reports: Sequence[Report]) -> Markup:
    metric, kind = metric_of(reports), rows[0].kind
    series = []
    for row, report in zip(rows, reports, strict=True):
        history = report["history"]
        values = (
            column(history, "top1")
            if metric is None
            else column([record.get("metrics") or {} for record in history], metric)
        )
        series.append(Series(str(row.number), values, color_of(row)))
    title = "Top-1 accuracy" if metric is None else kind.label
    return line_chart(title, series, unit=kind.unit, skips_start=True)


def _title(rows: Sequence[Row]) -> str:
    titles = {row.title for row in rows}
    return f"{len(rows)} runs of {rows[0].title}" if len(titles) == 1 else f"{len(rows)} runs"


def _verdict(rows: Sequence[Row]) -> str:
    """The most accurate small model and the smallest; the only one beside dense training."""
    small = [row for row in rows if not row.is_dense and row.accuracy is not None and row.macs is not None]
    kind = rows[0].kind
    if not small or kind.is_better_higher is None:
        return ""
    if kind != TOP1 and len({row.title for row in rows}) > 1:
        # Nobody knows in which unit each is measured.
        return ""
    if len(small) == 1:
        return f"{small[0].name} reaches {_in_short(small[0])}{_beside_dense(small[0])}."
    sign, which = (1 if kind.is_better_higher else -1), "most accurate" if kind == TOP1 else "best"
    # Of equally accurate ones, the smaller.
    best = max(small, key=lambda row: (sign * (row.accuracy or 0.0), -(row.macs or 0)))
    least = min(small, key=lambda row: row.macs or 0)
    if best is least:
        figures = f"{_in_short(best)}{_beside_dense(best)}"
        return f"{best.name} is both the smallest and the {which} small model: {figures}."
    return (
        f"{best.name} is the {which} small model, {_in_short(best)}; {least.name} is the smallest, "
        f"{_in_short(least)}{_noise_between(best, least)}."
    )


def _noise_between(best: Row, least: Row) -> str:
    if best.kind != TOP1 or best.accuracy is None or least.accuracy is None:
        return ""
    change = accuracy_change(
        best.accuracy, least.accuracy, num_samples=best.num_samples, num_before=least.num_samples
    )
    is_noise = change.is_noise and best.title == least.title
    return "; the difference is within the noise" if is_noise else ""


def _beside_dense(row: Row) -> str:
    if not row.change:
        return ""
    is_none = float(row.change.split(" ")[0]) == 0
    same = "as accurate as dense" if row.kind == TOP1 else "as good as dense"
    how_far = same if is_none else f"{row.change} from dense"
    return f", {how_far}{', within the noise' if row.is_noise else ''}"


def _in_short(row: Row) -> str:
    size = f"{row.flops} FLOPs" if row.kept == "-" else f"{row.kept} of the FLOPs"
    return f"{row.score} with {size}"
