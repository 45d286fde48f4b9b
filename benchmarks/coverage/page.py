"""The page `coverage.md`.

Takes the findings of every model, gives bars, a summary of each suite and one row a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.coverage.bars import list_bars
from benchmarks.coverage.calls import SEED
from benchmarks.coverage.children import Facts
from benchmarks.coverage.progress import Measured
from benchmarks.coverage.verdict import (
    cost_is_exact,
    is_cut,
    is_exact,
    is_wrong,
    survives_disk,
    trains,
    why_not_cut,
)
from benchmarks.sheets.sheet import heading, table, write_sheet, yes

_PACKAGES = ("torch", "torchvision", "timm", "transformers", "torch-pruning")
_ELSEWHERE = {"torchvision": "55 / 53 of ~105", "timm": "6 / 6 of 87", "transformers": "0 / 0 of 12"}
_HEADER = (
    *("model", "cut", "difference", "removed", "prunable", "cost", "train", "disk", "inspect s", "export s"),
    *("TP usable", "TP exact", "TP removed", "TP graph s", "remarks"),
)
_CHECKS = {
    "nothing wrong": lambda measured: not is_wrong(measured),
    "exact": is_exact,
    "cut": is_cut,
    "cost exact": cost_is_exact,
    "train": trains,
    "disk": survives_disk,
}
_LONGEST_REMARK = 220

INTRODUCTION = """\
Every model is built with random weights, which are re-drawn so that nothing hides behind small ones; half
of the channels of every group are dropped at random (seed {seed}); the silenced model is compared with the
cut one in eval mode.

- *difference*: largest difference of any output, relative to that output's largest value; float64, or
  float32 where marked. In float64, what a model does in float32 on purpose is done in float64 as well.
- *removed*: share of the multiply-adds gone at keep=0.5; *prunable*: share that would go if each group kept
  one channel.
- *cost*: predicted multiply-adds equal torch's counter exactly, before and after the cut (counted on CPU
  tensors where marked *c*). A cost is for as many objects as the model finds on the example. Where marked
  *o* the cut model finds another number of them than the whole one, as the silenced model does: the
  prediction is then that of the silenced model's own inspection, and *removed* is for as many objects as
  the whole model finds.
- *inspect s*, *export s*, *TP graph s*: seconds of `trainonce.inspect`, `torch.export` and Torch-Pruning's
  graph, one right after the other in one process, so that other load slows down all three; empty where it
  failed or was not done in time.
- *train*: one training step of the cut model; *disk*: saved, loaded onto a freshly built model, bit-equal.
- *cut*: exact and at least 15 % of the multiply-adds removed.
- Torch-Pruning is used as its README says, magnitude importance, ratio 0.5, on the same weights. *usable*:
  it runs, keeps the output's shape, trains, and at least 2 % of the parameters are gone; *exact*: it also
  equals the model with the same channels zeroed, within 1e-3. Its classifier is left out of the cut; where
  the output's shape would change otherwise, every layer as wide as an output is (marked *w*).
- only_train_once can't be imported on current torch; its figures (usable / exact) were measured apart, on
  torch 2.4.1.
"""


def write_page(path: Path, measured: Sequence[Measured]) -> None:
    """Write the whole page; an older one is replaced at once."""
    models = [m for m in measured if m.subject.suite != "scale"]
    blocks: list[str | list[str]] = [
        heading(*_PACKAGES, seeds=f"seed {SEED} throughout"),
        INTRODUCTION.format(seed=SEED),
        "## Bars",
        table(
            ("what", "bar", "measured", "met"), [(*words, yes(met)) for *words, met in list_bars(measured)]
        ),
        "## Suites",
        _summary(models),
    ]
    for suite in dict.fromkeys(m.subject.suite for m in models):
        rows = [_cells(m) for m in models if m.subject.suite == suite]
        blocks += [f"## {suite}", table(_HEADER, rows)]
    if scale := [m for m in measured if m.subject.suite == "scale"]:
        blocks.append("## Growth: a Llama-shaped decoder of width 4096 on the `meta` device")
        header = ("layers", "groups", "parameters", "inspect s", "largest memory GB", "remarks")
        blocks.append(table(header, map(_scale_cells, scale)))
    write_sheet(path, "Coverage: which models can be cut, exactly, and how far", *blocks)


def _summary(models: list[Measured]) -> list[str]:
    rows = []
    for suite in dict.fromkeys(m.subject.suite for m in models):
        of_suite = [m for m in models if m.subject.suite == suite]
        counts = [sum(check(m) for m in of_suite) for check in _CHECKS.values()]
        usable, exact = (
            sum(bool(m.parts.get("peer", {}).get(fact)) for m in of_suite) for fact in ("usable", "exact")
        )
        rows.append((suite, len(of_suite), *counts, f"{usable} / {exact}", _ELSEWHERE[suite]))
    return table(("suite", "models", *_CHECKS, "Torch-Pruning usable / exact", "only_train_once"), rows)


def _cells(measured: Measured) -> tuple[str, ...]:
    ours, peer, turns = (measured.parts.get(part, {}) for part in ("ours", "peer", "turns"))
    return (
        measured.subject.source.partition(":")[2],
        yes(is_cut(measured), "no"),
        _difference(ours),
        percent(ours.get("removed_share")),
        percent(ours.get("prunable_share")),
        yes(cost_is_exact(measured), "no") + _marks(ours),
        yes(trains(measured), "no"),
        yes(survives_disk(measured), "no"),
        said_seconds(turns.get("inspect_seconds")),
        said_seconds(turns.get("export_seconds")),
        yes(bool(peer.get("usable")), "no"),
        yes(bool(peer.get("exact")), "no") + (" *w*" if peer.get("left_out") else ""),
        percent(peer.get("removed_share")),
        said_seconds(turns.get("graph_seconds")),
        _remarks(measured),
    )


def _scale_cells(measured: Measured) -> tuple[object, ...]:
    facts = measured.parts.get("scale", {})
    memory = f"{facts['peak_gb']:.2f}" if "peak_gb" in facts else "-"
    sizes = (facts.get("num_groups", "-"), facts.get("parameters", "-"))
    found = (said_seconds(facts.get("inspect_seconds")), memory, clean(facts.get("failure") or ""))
    return measured.subject.source.partition(":")[2], *sizes, *found


def _difference(ours: Facts) -> str:
    if ours.get("difference") is None:
        return "-"
    return f"{ours['difference']:.0e}" + (" (float32)" if ours["precision"] == "float32" else "")


def _marks(ours: Facts) -> str:
    return (" *c*" if ours.get("counted_on") == "cpu" else "") + (
        " *o*" if ours.get("cost_of_other_objects") else ""
    )


def _remarks(measured: Measured) -> str:
    ours, peer = (measured.parts.get(part, {}) for part in ("ours", "peer"))
    remarks = [why_not_cut(measured)]
    if ours.get("not_finite"):
        remarks.append(f"{ours['not_finite']:.0%} of the outputs are not finite")
    if ours.get("train_problem"):
        remarks.append(f"train: {ours['train_problem']}")
    if ours.get("disk_problem"):
        remarks.append(f"disk: {ours['disk_problem']}")
    remarks += [f"note: {note}" for note in ours.get("notes", [])[:2]]
    remarks = [clean(remark) for remark in remarks if remark]
    if peer.get("failure") or peer.get("problem"):
        remarks.append(clean(f"TP: {peer.get('failure') or peer.get('problem')}")[: _LONGEST_REMARK // 2])
    return "; ".join(remarks)


def clean(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:_LONGEST_REMARK]


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def said_seconds(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}"
