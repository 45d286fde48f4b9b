"""`python -m benchmarks modelopt`: NVIDIA ModelOpt's FastNAS on every model of the suites, one child each.

Writes `benchmarks/results/modelopt.md`. Its environment is built by `make modelopt`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.coverage.children import Facts, Limits
from benchmarks.coverage.coverage import is_wanted
from benchmarks.coverage.page import clean, percent, said_seconds
from benchmarks.coverage.progress import Measured, measure_all
from benchmarks.coverage.suites import Subject, list_models, list_some
from benchmarks.promises.budget import BUDGETS
from benchmarks.promises.budgets import SUBJECTS, WITHIN
from benchmarks.sheets.options import add_number, add_several
from benchmarks.sheets.sheet import ROOT, heading_of_runs, table, write_sheet, yes

PYTHON = ROOT / ".venv-modelopt" / "bin" / "python"
MISSING = "ModelOpt is not installed here; `make modelopt` builds an environment of its own for it"
SUITES = ("transformers", "timm", "torchvision")
KEEP_FLOPS = 0.5
COUNTING = 0.001
"""Of the whole model: ModelOpt's counter may differ by this from torch's before a budget counts as missed."""

_MOST_WAITING = 20
"""How much longer than the CPU's a wall's second may be where the machine has other work."""

_PARTS = {"budget": "fastnas_budget"}
_HEADER = (
    *("model", "widths", "usable", "exact", "difference", "FLOPs left", "parameters gone", "budget met"),
    *("search CPU s", "remarks"),
)

INTRODUCTION = """\
Models of [coverage.md](coverage.md), with the same example inputs and the same re-drawn weights: of
torchvision the smallest of each of its modules, of timm the smallest of every sixth family, all of
transformers (`--every` takes all of all). A model has {seconds} seconds of one CPU.
FastNAS is used as ModelOpt's guide says, with `constraints={"flops": "50%"}`, on the CPU. The guide leaves
the score to the user: here it is the share of ModelOpt's own channel importance that a subnet keeps, which
needs no data. No data loader is given, so that batch norms keep their statistics and the small model can be
compared with the whole one. The search has 10 steps (it halves an interval each time).

- *widths*: how many widths FastNAS can choose; *converted* models have at least one.
- *usable*: the small model runs, keeps the output's shape, trains for a step, and at least 2 % of the
  parameters are gone; *exact*: it also equals the whole model with the same channels zeroed, within 1e-3 of
  the output's scale. Both mean what they mean for Torch-Pruning. Which channels are gone is read from the
  same model converted again; *?* where a layer is of a kind whose outputs can't be zeroed that way.
- *FLOPs left*: as `torch.utils.flop_counter` counts, of the whole model; *budget met*: its search found a
  subnet and that has at most half, or a thousandth of the model more: ModelOpt counts in its own way. The
  summary counts models for which its search found one.
- *d*: multiples of 32, the default, don't reach the budget, so any width was allowed.
- *h*: its search fails (why is in the remarks), so about 0.7 of every width was chosen by hand and exported.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_several(parser, "--suite", "only this suite", choices=[*SUITES, "budget"])
    words = "only this model, or those that match a pattern such as 'resnet*'"
    add_several(parser, "--only", words, metavar="NAME")
    words = "every model of the suites, instead of a part of torchvision and timm"
    parser.add_argument("--every", action="store_true", help=words)
    words = "python with ModelOpt (default: that of `make modelopt`)"
    parser.add_argument("--modelopt-python", type=Path, default=PYTHON, metavar="FILE", help=words)
    parser.add_argument("--table-only", action="store_true", help="measure nothing, show what is on disk")
    parser.add_argument("--keep-cache", action="store_true", help="also use results of older code")
    add_number(parser, "--cpu-seconds", 300.0, "time limit of a model", metavar="S")
    add_number(parser, "--memory-gb", 16.0, "memory limit of a model's process", metavar="GB")


def run(arguments: argparse.Namespace) -> int:
    """Measure the models that were asked for; those measured before with the same code are not again."""
    if not arguments.table_only and not arguments.modelopt_python.exists():
        print(MISSING, file=sys.stderr)
        return 2
    suites = arguments.suite or [*SUITES, "budget"]
    list_suite = list_models if arguments.every else list_some
    subjects = [
        subject
        for suite in suites
        for subject in (_budgets() if suite == "budget" else list_suite(suite))
        if is_wanted(subject, arguments.only)
    ]
    if not subjects:
        print(f"no model of {', '.join(suites)} is named {' or '.join(arguments.only)}", file=sys.stderr)
        return 2
    limits = Limits(
        seconds=_MOST_WAITING * arguments.cpu_seconds,
        cpu_seconds=arguments.cpu_seconds,
        memory_gb=arguments.memory_gb,
        python=arguments.modelopt_python,
    )
    measured = measure_all(
        subjects,
        limits,
        workers=1,
        accept_old=arguments.keep_cache,
        only=("nothing",) if arguments.table_only else (),
        parts_of=lambda subject: (_part(subject),),
    )
    write_page(arguments.out, [one for one in measured if one.parts], seconds=arguments.cpu_seconds)
    return 0


def write_page(path: Path, measured: Sequence[Measured], *, seconds: float) -> None:
    """Write the whole page; an older one is replaced at once."""
    suites = {suite: [m for m in measured if m.subject.suite == suite] for suite in (*SUITES, "budget")}
    budgets = suites.pop("budget")
    results = [facts for m in measured if "versions" in (facts := _facts(m))]
    blocks: list[str | list[str]] = [
        heading_of_runs(results, seeds="seed 0 throughout"),
        INTRODUCTION.replace("{seconds}", f"{seconds:.0f}"),
        "## Suites",
        table(
            ("suite", "models", "converted", "usable / exact", "budget met", "exact can't be said"),
            [_summary(suite, models) for suite, models in suites.items() if models],
        ),
    ]
    if budgets:
        blocks += ["## Budgets", *_budget_blocks([_facts(m) for m in budgets], budgets)]
    for suite, models in suites.items():
        if models:
            blocks += [f"## {suite}", table(_HEADER, [_cells(m) for m in models])]
    write_sheet(path, "ModelOpt: what FastNAS can cut, exactly, and does it meet a budget", *blocks)


def meets_budget(facts: Facts, asked: float = KEEP_FLOPS) -> bool:
    """Whether its own search came to a subnet with at most the FLOPs asked for, as torch counts them."""
    return not facts.get("by_hand") and facts.get("left_share", 1.0) <= asked + COUNTING


def _summary(suite: str, models: Sequence[Measured]) -> tuple[object, ...]:
    found = [_facts(m) for m in models]
    converted, usable, exact = (
        sum(bool(facts.get(fact)) for facts in found) for fact in ("num_widths", "usable", "exact")
    )
    searched = [facts for facts in found if "left_share" in facts and not facts.get("by_hand")]
    met = f"{sum(map(meets_budget, searched))} of {len(searched)}"
    unknown = sum(bool(facts.get("usable")) and facts.get("difference") is None for facts in found)
    return suite, len(models), converted, f"{usable} / {exact}", met, unknown


def _budget_blocks(found: Sequence[Facts], budgets: Sequence[Measured]) -> list[str | list[str]]:
    """The models and budgets of budget.md."""
    asked = [_asked(m.subject) for m in budgets]
    below = [
        (share, facts["left_share"])
        for share, facts in zip(asked, found, strict=True)
        if meets_budget(facts, share)
    ]
    close = [one for one in below if one[0] - one[1] <= WITHIN]
    failed = sum("left_share" not in facts for facts in found)
    rows = [
        ("at or below the budget", f"{len(below)} of {len(found)}"),
        ("at or below, and within 1 % of the model", f"{len(close)} of {len(found)}"),
        ("no subnet at all", failed),
    ]
    cells = [
        (
            *(m.subject.source.partition(":")[2].rpartition("@")[::2]),
            f"{facts['left_share']:.4f}{_marks(facts)}" if "left_share" in facts else "-",
            yes(meets_budget(facts, share)),
            clean(_search_failure({"search_failure": facts.get("failure")})),
        )
        for m, facts, share in zip(budgets, found, asked, strict=True)
    ]
    words = "The models and budgets of [budget.md](budget.md), one search each, counted the same way."
    return [
        words,
        table(("what", "found"), rows),
        table(("model", "asked for", "FLOPs left", "at or below", "remarks"), cells),
    ]


def _budgets() -> list[Subject]:
    return [
        Subject("budget", f"budget:{name}@{keep:g}", "budget")
        for name, keep in itertools.product(SUBJECTS, BUDGETS)
    ]


def _asked(subject: Subject) -> float:
    return float(subject.source.rpartition("@")[2])


def _part(subject: Subject) -> str:
    return _PARTS.get(subject.suite, "fastnas")


def _facts(measured: Measured) -> Facts:
    return measured.parts.get(_part(measured.subject), {})


def _cells(measured: Measured) -> tuple[object, ...]:
    facts = _facts(measured)
    difference = facts.get("difference")
    is_unknown = bool(facts.get("usable")) and difference is None
    remarks = [facts.get("failure"), facts.get("problem"), _search_failure(facts)]
    return (
        measured.subject.source.partition(":")[2],
        facts.get("num_widths", "-"),
        yes(bool(facts.get("usable")), "no"),
        "?" if is_unknown else yes(bool(facts.get("exact")), "no"),
        "-" if difference is None else f"{difference:.0e}",
        percent(facts.get("left_share")) + _marks(facts),
        percent(facts.get("removed_parameters")),
        yes(meets_budget(facts), "no"),
        said_seconds(facts.get("search_seconds")),
        "; ".join(clean(remark) for remark in remarks if remark),
    )


def _search_failure(facts: Facts) -> str:
    words = facts.get("search_failure") or ""
    # It raises its whole table of costs, and says only at the end of it what is wrong.
    return "no subnet within the budget" if "Profiling the following subnets" in words else words


def _marks(facts: Facts) -> str:
    return (" *d*" if facts.get("any_width") else "") + (" *h*" if facts.get("by_hand") else "")
