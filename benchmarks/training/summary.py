"""The table of all runs in the cache.

Takes configurations, gives a row for each contender and budget, and the bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.sheets.sheet import table, yes
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration
from benchmarks.training.fingerprint import code_of
from benchmarks.training.measures import (
    ACCURACY,
    Lead,
    Measure,
    lead_of,
    said,
    said_interval,
    said_spread,
)
from benchmarks.training.regimes import Regime

WITHIN = 0.01

Results = Sequence[dict[str, Any]]
Rows = dict[tuple[str, float], Results]
"""By contender and budget."""


def results_by_row(wanted: Sequence[Configuration], *, accept_old: bool) -> Rows:
    """The finished runs of each contender and budget; those of older code only if that is accepted."""
    rows: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for configuration in wanted:
        rows.setdefault((configuration.contender, configuration.keep_flops), [])
        of_code = None if accept_old else code_of(configuration)
        if (result := configuration.result(of_code=of_code)) is not None:
            rows[configuration.contender, configuration.keep_flops].append(result)
    return dict(rows)


def summarise(rows: Rows, failures: Mapping[str, str], num_seeds: int, regime: Regime) -> list[list[str]]:
    """The blocks of all tables, the widest budget first, the best contender first."""
    blocks, measure = [], regime.measure
    dense = rows.get(("dense", 1.0), ())
    header = (
        *("contender", measure.words, "spread", "seeds", "to dense", "ours ahead", "95 %", "training loss"),
        *("test loss", "FLOPs", "equal FLOPs", "parameters", "time", "remark"),
    )
    for keep, of_name in _ranked(rows, measure).items():
        ours = of_name.get("ours", ())
        cells = []
        for name, results in of_name.items():
            ahead = None if name in ("dense", "ours") else lead_of(ours, results, measure)
            cells.append(
                result_cells(name, results, num_seeds, failures, measure=measure)
                | {
                    "to dense": "-" if name == "dense" else said(lead_of(results, dense, measure)),
                    "ours ahead": said(ahead),
                    "95 %": said_interval(ahead),
                    "equal FLOPs": "-" if name == "dense" else yes(_has_equal_flops(results, keep)),
                    "time": _said_time(results, dense),
                }
            )
        blocks += [[f"## keep_flops = {keep:g}"], result_table(header, cells)]
        if bars := _bars(of_name, keep, regime):
            blocks.append(table(("what", "bar", "found", "met"), bars))
    return blocks


def _said_time(results: Results, dense: Results) -> str:
    """Seconds of the runs as a share of the dense ones'."""
    own, whole = ([result["seconds"] for result in each if "seconds" in result] for each in (results, dense))
    return f"{mean(own) / mean(whole):.2f}" if own and whole else "-"


def result_table(header: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Rows by the names of their cells, the contender first; one without runs has nothing but words."""
    said = [row if "FLOPs" in row else {name: row[name] for name in _WORDS} for row in rows]
    return table(header, [[row["contender"], *(row.get(name, "-") for name in header[1:])] for row in said])


_WORDS = ("contender", "seeds", "remark")


def result_cells(
    name: str,
    results: Results,
    num_seeds: int,
    failures: Mapping[str, str],
    *,
    measure: Measure = ACCURACY,
    spread_of: str = "score",
) -> dict[str, str]:
    """What every table says of a contender's runs, by column."""
    cells = {"contender": CONTENDERS[name].words, "seeds": f"{len(results)} of {num_seeds}"}
    if not results:
        return cells | {"remark": said_failure(name, failures)}
    losses = [result["log"][-1]["loss"] for result in results]
    tested = [result["test_loss"] for result in results if "test_loss" in result]
    scores = [measure.of(result) for result in results]
    shares = {
        words: f"{mean(result.get(f'share_of_{words.lower()}', 0) for result in results):.3f}"
        for words in ("FLOPs", "parameters")
    }
    spread = said_spread(scores, measure.digits) if spread_of == "score" else said_spread(losses)
    return (
        cells
        | shares
        | {
            measure.words: measure.said(mean(scores)),
            "spread": spread,
            "training loss": f"{mean(losses):.3f}",
            "test loss": f"{mean(tested):.3f}" if tested else "-",
            "remark": said_origin(results),
        }
    )


def _has_equal_flops(results: Results, keep: float) -> bool:
    return all(abs(result["share_of_flops"] / keep - 1) <= WITHIN for result in results)


def ranked_scores(rows: Rows, measure: Measure = ACCURACY) -> dict[float, dict[str, list[float]]]:
    """For each budget the scores of each contender, seed by seed, in the order of the table."""
    return {
        keep: {
            CONTENDERS[name].words: [measure.of(result) for result in results]
            for name, results in of_name.items()
        }
        for keep, of_name in _ranked(rows, measure).items()
    }


def _ranked(rows: Rows, measure: Measure) -> dict[float, dict[str, Results]]:
    """The rows of each budget, the widest first, by contender, the best first; dense stands in all."""

    def place(results: Results) -> tuple[bool, float]:
        score = mean(measure.of(result) for result in results) if results else 0.0
        return not results, score if measure.is_lower_better else -score

    found: dict[float, dict[str, Results]] = {}
    for keep in sorted({keep for _, keep in rows if keep < 1}, reverse=True):
        names = [name for name, budget in rows if budget == keep] + (
            ["dense"] if ("dense", 1.0) in rows else []
        )
        of_name = {name: rows[name, 1.0 if name == "dense" else keep] for name in names}
        found[keep] = {name: of_name[name] for name in sorted(names, key=lambda name: place(of_name[name]))}
    return found


def _bars(of_name: Mapping[str, Results], keep: float, regime: Regime) -> list[tuple[str, ...]]:
    """Over the seeds that both have; the best of the rest is shown whoever it is.

    Nobody is beaten with fewer FLOPs than were asked for, and a teacher is compared with teachers' pupils.
    """
    bars = []
    for ours_name in ("ours", "ours_taught"):
        leads = _leads(of_name, ours_name, keep, regime.measure)
        whose = "taught: " if CONTENDERS[ours_name].is_taught else ""
        for name in leads:
            if CONTENDERS[name].is_peer and keep in regime.ahead:
                what = f"{whose}ahead of {CONTENDERS[name].words}"
                bars.append((what, *_verdict(leads[name], regime.ahead[keep])))
            if (keep, name) in regime.surely_ahead:
                what = f"{whose}the interval beside {CONTENDERS[name].words} excludes zero"
                bars.append((what, *_sure(leads[name])))
        if comparable := {name: lead.points for name, lead in leads.items() if lead is not None}:
            best = min(comparable, key=lambda name: comparable[name])
            what = f"{whose}ahead of the best of the rest ({CONTENDERS[best].words})"
            bars.append((what, *_verdict(leads[best], regime.ahead.get(keep, 0))))
        to_dense = lead_of(of_name.get(ours_name, ()), of_name.get("dense", ()), regime.measure)
        if to_dense is not None and keep in regime.to_dense:
            bars.append((f"{whose}to dense", *_verdict(to_dense, -regime.to_dense[keep])))
    return bars


def _leads(
    of_name: Mapping[str, Results], ours: str, keep: float, measure: Measure
) -> dict[str, Lead | None]:
    """Ours beside everyone else who has a teacher or has none, as ours; None: the other had too few FLOPs."""
    leads: dict[str, Lead | None] = {}
    for name, results in of_name.items():
        is_alike = CONTENDERS[name].is_taught == CONTENDERS[ours].is_taught
        if name not in ("ours", "ours_taught", "dense") and is_alike:
            lead = lead_of(of_name.get(ours, ()), results, measure)
            if lead is not None:
                too_few = any(result["share_of_flops"] < keep * (1 - WITHIN) for result in results)
                leads[name] = None if too_few else lead
    return leads


def _verdict(lead: Lead | None, least: float) -> tuple[str, str, str]:
    """The bar, what was found, and whether it is enough; None: the other had too few FLOPs."""
    if lead is None:
        return f">= {least}", "it has fewer FLOPs, so this says nothing", "-"
    return f">= {least}", said(lead), yes(lead.points >= least)


def _sure(lead: Lead | None) -> tuple[str, str, str]:
    if lead is None:
        return "above zero", "it has fewer FLOPs, so this says nothing", "-"
    return "above zero", said_interval(lead), yes(lead.excludes_zero and lead.points > 0)


def said_failure(name: str, failures: Mapping[str, str]) -> str:
    """Why there is no result of a contender."""
    return next((reason for run, reason in failures.items() if run.startswith(f"{name}-")), "not run yet")


def said_origin(results: Results) -> str:
    """How many results are of other code than this."""
    num_old = sum(
        result.get("of_code") != code_of(Configuration(**result["configuration"])) for result in results
    )
    return f"{num_old} of older code" if num_old else ""


def by_run(rows: Rows) -> dict[str, dict[str, Any]]:
    """All results by the names of their runs.

    A plan, which is most of a result, only where another contender needs it.
    """
    needed = {entry.needs for entry in CONTENDERS.values()}
    return {
        Configuration(**result["configuration"]).name: {
            key: value for key, value in result.items() if key != "plan" or name in needed
        }
        for (name, _), results in rows.items()
        for result in results
    }
