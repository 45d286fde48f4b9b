"""The page `coverage_others.md`.

Takes the findings of every model, gives bars, a summary of each package and one row a model.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.coverage.bars import all_are, exact_bar
from benchmarks.coverage.calls import SEED
from benchmarks.coverage.children import Facts
from benchmarks.coverage.page import clean, percent, said_seconds
from benchmarks.coverage.progress import Measured
from benchmarks.coverage.verdict import cost_is_exact, is_cut, is_exact, is_wrong, survives_disk, trains
from benchmarks.sheets.sheet import Bar, exit_code, spoken_command, table, today, write_sheet, yes

LEAST_MODELS, LEAST_PACKAGES = 40, 12
MAY_REMAIN = {
    "torch_geometric/GCN": 0.10,
    "torch_geometric/GraphSAGE": 0.10,
    "transformers/DetrForObjectDetection": 0.20,
}
"""Of the multiply-adds, at most."""

_NOT_BUILT = "after build: "
_HEADER = (
    *("model", "difference", "removed", "remains", "bar", "cost", "train", "disk", "inspect s"),
    *("kept because", "remarks"),
)

INTRODUCTION = """\
Small models of other packages, built offline with random weights, which are re-drawn so that nothing hides
behind small ones; half of the channels of every group are dropped at random (seed {seed}); the silenced
model is compared with the cut one in eval mode. `make others` builds the environment.

- *difference*: largest difference of any output, relative to that output's largest value; float64, or
  float32 where marked. In float64, what a model does in float32 on purpose is done in float64 as well.
- *removed*: share of the multiply-adds gone at keep=0.5; *remains*: share that is left when every group that
  may be cut keeps one channel.
- *cost*: predicted multiply-adds equal torch's counter exactly, before and after the cut (counted on CPU
  tensors where marked *c*; marked *o*: for another number of objects, see coverage.md).
- *train*: one training step of the cut model; *disk*: saved, loaded onto a freshly built model, bit-equal.
- *kept because*: the reasons that the most multiply-adds depend on, each with the share that would go if the
  groups kept for it could lose all but one channel.
"""


def write_others(path: Path, measured: Sequence[Measured], versions: Mapping[str, str]) -> int:
    """Write the whole page; 1 if a bar is missed."""
    bars = list_bars(measured)
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    write_sheet(
        path,
        "Coverage of other packages: what can be cut of their models, exactly, and how far",
        [f"    {spoken_command()}", "", f"{today()}; {said}; {machine}; seed {SEED} throughout."],
        INTRODUCTION.format(seed=SEED),
        "## Bars",
        table(("what", "bar", "measured", "met"), [(*words, yes(met)) for *words, met in bars]),
        "## Packages",
        _summary(measured),
        "## Models",
        table(_HEADER, map(_cells, measured)),
    )
    return exit_code(bars)


def list_bars(measured: Sequence[Measured]) -> list[Bar]:
    """All bars that the measured models can answer."""
    built = [m for m in measured if is_built(m)]
    packages = {m.subject.kind for m in built}
    wanted = f">= {LEAST_MODELS} of >= {LEAST_PACKAGES} packages, all that are listed"
    missing = [name_of(m) for m in measured if not is_built(m)]
    found = f"{len(built)} of {len(packages)} packages"
    is_met = len(built) >= LEAST_MODELS and len(packages) >= LEAST_PACKAGES and not missing
    cut = [m for m in built if is_cut(m)]
    bars = [
        ("models built", wanted, found + (f"; not: {', '.join(missing)}" if missing else ""), is_met),
        all_are("no exception, no wrong cut", "all models", built, lambda m: not is_wrong(m)),
        exact_bar(built),
        all_are("cost law on every model that is cut", "exact", cut, cost_is_exact),
        all_are("the cut model trains", "all models", built, trains),
        all_are("saved and loaded with the same bits", "all models", built, survives_disk),
    ]
    for m in measured:
        if (most := MAY_REMAIN.get(name_of(m))) is not None:
            left = remains(m)
            said = "not measured" if left is None else f"{left:.3f}"
            bars.append((f"{name_of(m)} remains", f"<= {most:.2f}", said, left is not None and left <= most))
    return [bar for bar in bars if bar is not None]


def is_built(measured: Measured) -> bool:
    """Whether there was a model to measure."""
    return not str(_ours(measured).get("failure", "")).startswith(_NOT_BUILT)


def name_of(measured: Measured) -> str:
    """Package and model."""
    return measured.subject.source.partition(":")[2]


def remains(measured: Measured) -> float | None:
    """The share of the multiply-adds that no cut can take; None if it is not known."""
    share = _ours(measured).get("prunable_share")
    return None if share is None else 1 - share


def _summary(measured: Sequence[Measured]) -> list[str]:
    rows = []
    for package in dict.fromkeys(m.subject.kind for m in measured):
        models = [m for m in measured if m.subject.kind == package]
        left = [share for share in map(remains, models) if share is not None]
        counts = (sum(check(m) for m in models) for check in (is_built, is_exact, is_cut))
        rows.append((package, len(models), *counts, percent(sum(left) / len(left)) if left else "-"))
    return table(("package", "models", "built", "exact", "15 % removed", "remains on average"), rows)


def _cells(measured: Measured) -> tuple[str, ...]:
    ours, most, left = _ours(measured), MAY_REMAIN.get(name_of(measured)), remains(measured)
    return (
        name_of(measured),
        _difference(ours),
        percent(ours.get("removed_share")),
        "-" if left is None else f"{left:.3f}",
        "" if most is None else f"<= {most:.2f}",
        yes(cost_is_exact(measured), "no") + _marks(ours),
        yes(trains(measured), "no"),
        yes(survives_disk(measured), "no"),
        said_seconds(ours.get("inspect_seconds")),
        "; ".join(ours.get("costliest", ())),
        _remarks(ours),
    )


def _difference(ours: Facts) -> str:
    if ours.get("difference") is None:
        return "-"
    return f"{ours['difference']:.0e}" + (" (float32)" if ours["precision"] == "float32" else "")


def _marks(ours: Facts) -> str:
    return (" *c*" if ours.get("counted_on") == "cpu" else "") + (
        " *o*" if ours.get("cost_of_other_objects") else ""
    )


def _remarks(ours: Facts) -> str:
    failure = str(ours.get("failure") or "")
    remarks = [failure.replace(_NOT_BUILT, "not built: ")]
    if ours.get("not_finite"):
        remarks.append(f"{ours['not_finite']:.0%} of the outputs are not finite")
    for kind in ("train", "disk"):
        if problem := ours.get(f"{kind}_problem"):
            remarks.append(f"{kind}: {problem}")
    remarks += [f"note: {note}" for note in ours.get("notes", [])[:2]]
    return "; ".join(clean(remark) for remark in remarks if remark)


def _ours(measured: Measured) -> Facts:
    return measured.parts.get("ours", {"failure": "not measured"})
