"""The table of all runs in the cache.

Takes configurations, gives a row for each contender and budget, and the bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from benchmarks.sheets.sheet import table, yes
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration
from benchmarks.training.fingerprint import fingerprint

WITHIN = 0.01
AHEAD = {0.5: 0.5, 0.3: 1.0}
"""Points by which ours has to lead every other way to prune, by budget; elsewhere it must not be behind."""

OF_DENSE = {0.5: 0.3}
"""Points that ours may be behind dense, by budget."""

Results = Sequence[dict[str, Any]]
Rows = dict[tuple[str, float], Results]
"""By contender and budget."""


def results_by_row(wanted: Sequence[Configuration], *, accept_old: bool) -> Rows:
    """The finished runs of each contender and budget; those of older code only if that is accepted."""
    rows: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for configuration in wanted:
        rows.setdefault((configuration.contender, configuration.keep_flops), [])
        of_code = None if accept_old else fingerprint(configuration.contender)
        if (result := configuration.result(of_code=of_code)) is not None:
            rows[configuration.contender, configuration.keep_flops].append(result)
    return dict(rows)


_HEADER = (
    *("contender", "accuracy, %", "spread", "seeds", "to dense", "ours ahead", "training loss"),
    *("FLOPs", "equal FLOPs", "parameters", "remark"),
)


def summarise(rows: Rows, failures: Mapping[str, str], num_seeds: int) -> list[list[str]]:
    """The blocks of all tables, the widest budget first, the best contender first."""
    blocks = []
    dense = rows.get(("dense", 1.0), ())
    for keep, of_name in _ranked(rows).items():
        ours = of_name.get("ours", ())
        cells = [
            result_cells(name, results, num_seeds, failures)
            | {
                "to dense": "-" if name == "dense" else said(lead_of(results, dense)),
                "ours ahead": "-" if name in ("dense", "ours") else said(lead_of(ours, results)),
                "equal FLOPs": "-" if name == "dense" else yes(_has_equal_flops(results, keep)),
            }
            for name, results in of_name.items()
        ]
        blocks += [[f"## keep_flops = {keep:g}"], result_table(_HEADER, cells)]
        if bars := _bars(of_name, keep):
            blocks.append(table(("what", "bar", "found", "met"), bars))
    return blocks


def result_table(header: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Rows by the names of their cells, the contender first; one without runs has nothing but words."""
    said = [row if "FLOPs" in row else {name: row[name] for name in _WORDS} for row in rows]
    return table(header, [[row["contender"], *(row.get(name, "-") for name in header[1:])] for row in said])


_WORDS = ("contender", "seeds", "remark")


def result_cells(
    name: str, results: Results, num_seeds: int, failures: Mapping[str, str], *, spread_of: str = "accuracy"
) -> dict[str, str]:
    """What every table says of a contender's runs, by column."""
    cells = {"contender": CONTENDERS[name].words, "seeds": f"{len(results)} of {num_seeds}"}
    if not results:
        return cells | {"remark": said_failure(name, failures)}
    losses = [result["log"][-1]["loss"] for result in results]
    accuracies = [result["accuracy"] for result in results]
    shares = {
        words: f"{mean(result.get(f'share_of_{words.lower()}', 0) for result in results):.3f}"
        for words in ("FLOPs", "parameters")
    }
    return (
        cells
        | shares
        | {
            "accuracy, %": f"{mean(accuracies):.2f}",
            "spread": said_spread(accuracies if spread_of == "accuracy" else losses),
            "training loss": f"{mean(losses):.3f}",
            "remark": said_origin(name, results),
        }
    )


def _has_equal_flops(results: Results, keep: float) -> bool:
    return all(abs(result["share_of_flops"] / keep - 1) <= WITHIN for result in results)


def ranked_accuracies(rows: Rows) -> dict[float, dict[str, list[float]]]:
    """For each budget the accuracies of each contender, seed by seed, in the order of the table."""
    return {
        keep: {
            CONTENDERS[name].words: [result["accuracy"] for result in results]
            for name, results in of_name.items()
        }
        for keep, of_name in _ranked(rows).items()
    }


def _ranked(rows: Rows) -> dict[float, dict[str, Results]]:
    """The rows of each budget, the widest first, by contender, the best first; dense stands in all."""
    found: dict[float, dict[str, Results]] = {}
    for keep in sorted({keep for _, keep in rows if keep < 1}, reverse=True):
        names = [name for name, budget in rows if budget == keep] + (
            ["dense"] if ("dense", 1.0) in rows else []
        )
        of_name = {name: rows[name, 1.0 if name == "dense" else keep] for name in names}
        found[keep] = {
            name: of_name[name]
            for name in sorted(names, key=lambda name: -(mean_accuracy(of_name[name]) or 0))
        }
    return found


def _bars(of_name: Mapping[str, Results], keep: float) -> list[tuple[str, ...]]:
    """Over the seeds that both have; the best of the rest is shown whoever it is.

    Nobody is beaten with fewer FLOPs than were asked for.
    """
    ours, bars, leads = of_name.get("ours", ()), [], {}
    for name, results in of_name.items():
        if name not in ("ours", "dense") and (lead := lead_of(ours, results)) is not None:
            leads[name] = (
                None if any(result["share_of_flops"] < keep * (1 - WITHIN) for result in results) else lead
            )
    for name in leads:
        if CONTENDERS[name].is_peer and keep in AHEAD:
            bars.append((f"ahead of {CONTENDERS[name].words}", *_verdict(leads[name], AHEAD[keep])))
    if comparable := {name: lead.points for name, lead in leads.items() if lead is not None}:
        best = min(comparable, key=lambda name: comparable[name])
        what = f"ahead of the best of the rest ({CONTENDERS[best].words})"
        bars.append((what, *_verdict(leads[best], AHEAD.get(keep, 0))))
    to_dense = lead_of(ours, of_name.get("dense", ()))
    if to_dense is not None and keep in OF_DENSE:
        bars.append(("to dense", *_verdict(to_dense, -OF_DENSE[keep])))
    return bars


def _verdict(lead: Lead | None, least: float) -> tuple[str, str, str]:
    """The bar, what was found, and whether it is enough; None: the other had too few FLOPs."""
    if lead is None:
        return f">= {least}", "it has fewer FLOPs, so this says nothing", "-"
    return f">= {least}", said(lead), yes(lead.points >= least)


@dataclass(frozen=True, slots=True)
class Lead:
    """Points ahead on each seed that both have, in the order of the seeds."""

    of_seeds: tuple[float, ...]

    @property
    def points(self) -> float:
        """In the mean."""
        return mean(self.of_seeds)


def lead_of(results: Results, others: Results) -> Lead | None:
    """None where they have no seed in common."""
    mine, theirs = (
        {result["configuration"]["seed"]: result["accuracy"] for result in each} for each in (results, others)
    )
    common = sorted(mine.keys() & theirs.keys())
    return Lead(tuple(mine[seed] - theirs[seed] for seed in common)) if common else None


def said(lead: Lead | None) -> str:
    """The mean and, where there are several, what it is the mean of: a lead that changes its sign is none."""
    if lead is None:
        return "-"
    each = ", ".join(f"{points:+.2f}" for points in lead.of_seeds)
    return f"{lead.points:+.2f} ({each})" if len(lead.of_seeds) > 1 else f"{lead.points:+.2f} (1 seed)"


def mean_accuracy(results: Results) -> float | None:
    """Over the seeds that have been run; None if none has."""
    return mean(result["accuracy"] for result in results) if results else None


def said_spread(numbers: Sequence[float]) -> str:
    """Smallest, largest and standard deviation of several seeds."""
    return f"{min(numbers):.2f} to {max(numbers):.2f}, sd {stdev(numbers):.2f}" if len(numbers) > 1 else "-"


def said_failure(name: str, failures: Mapping[str, str]) -> str:
    """Why there is no result of a contender."""
    return next((reason for run, reason in failures.items() if run.startswith(f"{name}-")), "not run yet")


def said_origin(name: str, results: Results) -> str:
    """How many results are of other code than this."""
    num_old = sum(result.get("of_code") != fingerprint(name) for result in results)
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
