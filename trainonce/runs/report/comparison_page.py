"""The comparison page: takes the facts of several runs, gives one HTML text with all of them on one chart."""

from __future__ import annotations

from collections.abc import Sequence

from trainonce.runs.report.charts import Series, line_chart
from trainonce.runs.report.comparing import Row, compare_runs, differing_settings
from trainonce.runs.report.curves import column
from trainonce.runs.report.outline import Report
from trainonce.runs.report.rendering import render
from trainonce.runs.report.scatter import accuracy_over_flops, color_of
from trainonce.runs.report.uncertainty import accuracy_change


def render_comparison(named: Sequence[tuple[str, Report]], links: Sequence[str]) -> str:
    """The page of several runs, each with a name and a link to its own page."""
    rows = compare_runs(named)
    reports = [report for _, report in named]
    curves = [
        Series(str(row.number), column(report["history"], "top1"), color_of(row))
        for row, report in zip(rows, reports, strict=True)
    ]
    charts = [accuracy_over_flops(rows), line_chart("Top-1 accuracy", curves, unit="%", skips_start=True)]
    return render(
        "comparison.html",
        title=_title(rows),
        verdict=_verdict(rows),
        rows=list(zip(rows, links, map(color_of, rows), strict=True)),
        charts=[chart for chart in charts if chart],
        differing=differing_settings(reports),
    )


def _title(rows: Sequence[Row]) -> str:
    titles = {row.title for row in rows}
    return f"{len(rows)} runs of {rows[0].title}" if len(titles) == 1 else f"{len(rows)} runs"


def _verdict(rows: Sequence[Row]) -> str:
    """The most accurate small model and the smallest; the only one beside dense training."""
    small = [row for row in rows if not row.is_dense and row.accuracy is not None and row.macs is not None]
    if not small:
        return ""
    if len(small) == 1:
        return f"{small[0].name} reaches {_in_short(small[0])}{_beside_dense(small[0])}."
    # Of equally accurate ones, the smaller.
    best = max(small, key=lambda row: (row.accuracy or 0.0, -(row.macs or 0)))
    least = min(small, key=lambda row: row.macs or 0)
    if best is least:
        figures = f"{_in_short(best)}{_beside_dense(best)}"
        return f"{best.name} is both the smallest and the most accurate small model: {figures}."
    assert best.accuracy is not None
    assert least.accuracy is not None
    change = accuracy_change(
        best.accuracy, least.accuracy, num_samples=best.num_samples, num_before=least.num_samples
    )
    noise = "; the difference is within the noise" if change.is_noise and best.title == least.title else ""
    return (
        f"{best.name} is the most accurate small model, {_in_short(best)}; {least.name} is the smallest, "
        f"{_in_short(least)}{noise}."
    )


def _beside_dense(row: Row) -> str:
    if not row.change:
        return ""
    how_far = "as accurate as dense" if float(row.change) == 0 else f"{row.change} points from dense"
    return f", {how_far}{', within the noise' if row.is_noise else ''}"


def _in_short(row: Row) -> str:
    size = f"{row.flops} FLOPs" if row.kept == "-" else f"{row.kept} of the FLOPs"
    return f"{row.top1} top-1 with {size}"
