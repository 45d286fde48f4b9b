"""The table of all runs in the cache: takes configurations, gives a row for each contender and budget, and the bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.fingerprint import fingerprint
from benchmarks.sheet import table, yes

WITHIN = 0.01
AHEAD = {0.5: 0.5, 0.3: 1.0}
"""Points by which ours has to lead every pruning peer, by budget."""

OF_DENSE = {0.5: 0.3}
"""Points that ours may be behind dense, by budget."""

Results = Sequence[dict[str, Any]]


def results_by_row(wanted: Sequence[Configuration]) -> dict[tuple[str, float], Results]:
    """The finished runs of each contender and budget."""
    rows: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for configuration in wanted:
        rows.setdefault((configuration.contender, configuration.keep_flops), [])
        if (result := configuration.result()) is not None:
            rows[configuration.contender, configuration.keep_flops].append(result)
    return dict(rows)


def summarise(rows: Mapping[tuple[str, float], Results], failures: Mapping[str, str], num_seeds: int) -> list[str]:
    """The whole table, the widest budget first, the best contender first."""
    lines = []
    dense = mean_accuracy(rows.get(("dense", 1.0), ()))
    for keep in sorted({keep for _, keep in rows if keep < 1}, reverse=True):
        lines += ["", f"## keep_flops = {keep:g}", ""]
        names = [name for name, budget in rows if budget == keep] + (["dense"] if ("dense", 1.0) in rows else [])
        of_name = {name: rows[name, 1.0 if name == "dense" else keep] for name in names}
        ranked = sorted(names, key=lambda name: -(mean_accuracy(of_name[name]) or 0))
        header = ("contender", "accuracy, %", "spread", "seeds", "to dense", "FLOPs", "equal FLOPs", "minutes", "remark")
        lines += table(header, [_cells(name, of_name[name], keep, dense, num_seeds, failures) for name in ranked])
        if bars := _bars(of_name, keep, dense):
            lines += ["", *table(("what", "bar", "found", "met"), bars)]
    return lines


def _cells(name: str, results: Results, keep: float, dense: float | None, num_seeds: int, failures: Mapping[str, str]) -> tuple[str, ...]:
    words = CONTENDERS[name].words
    if not results:
        return words, "-", "-", f"0 of {num_seeds}", "-", "-", "-", "-", said_failure(name, failures)
    accuracies = [result["accuracy"] for result in results]
    share = mean(result["share_of_flops"] for result in results)
    is_equal = name == "dense" or all(abs(result["share_of_flops"] - keep) <= WITHIN for result in results)
    return (
        words,
        f"{mean(accuracies):.2f}",
        said_spread(accuracies),
        f"{len(results)} of {num_seeds}",
        "-" if dense is None else f"{mean(accuracies) - dense:+.2f}",
        f"{share:.3f}",
        "-" if name == "dense" else yes(is_equal),
        f"{mean(result['seconds'] for result in results) / 60:.1f}",
        said_age(name, results),
    )


def _bars(of_name: Mapping[str, Results], keep: float, dense: float | None) -> list[tuple[str, ...]]:
    ours = mean_accuracy(of_name.get("ours", ()))
    bars = []
    if ours is not None and keep in AHEAD:
        for name, results in of_name.items():
            theirs = mean_accuracy(results)
            if CONTENDERS[name].is_peer and theirs is not None:
                lead = ours - theirs
                bars.append((f"ahead of {CONTENDERS[name].words}", f">= {AHEAD[keep]}", f"{lead:+.2f}", yes(lead >= AHEAD[keep])))
    if ours is not None and dense is not None and keep in OF_DENSE:
        behind = dense - ours
        bars.append(("behind dense", f"<= {OF_DENSE[keep]}", f"{behind:.2f}", yes(behind <= OF_DENSE[keep])))
    return bars


def mean_accuracy(results: Results) -> float | None:
    """Over the seeds that have been run; None if none has."""
    return mean(result["accuracy"] for result in results) if results else None


def said_spread(numbers: Sequence[float]) -> str:
    """Smallest, largest and standard deviation of several seeds."""
    return f"{min(numbers):.2f} to {max(numbers):.2f}, sd {stdev(numbers):.2f}" if len(numbers) > 1 else "-"


def said_failure(name: str, failures: Mapping[str, str]) -> str:
    """Why there is no result of a contender."""
    return next((reason for run, reason in failures.items() if run.startswith(f"{name}-")), "not run yet")


def said_age(name: str, results: Results) -> str:
    """How many results are of other code than this."""
    num_old = sum(result.get("of_code") != fingerprint(name) for result in results)
    return f"{num_old} of older code" if num_old else ""
