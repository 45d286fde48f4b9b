"""`python -m benchmarks budget`: five budgets on six models; writes `benchmarks/results/budget.md`."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

from benchmarks.promises.budgets import SUBJECTS, Kept, measure_budget
from benchmarks.sheets.options import add_number, add_seed, add_several
from benchmarks.sheets.sheet import Bar, bar_table, count_bar, exit_code, heading, table, write_sheet, yes
from benchmarks.sheets.waiting import waiting

BUDGETS = (0.2, 0.35, 0.45, 0.6, 0.8)
LARGEST_DIFFERENCE = 1e-4
"""In float32, relative to the largest output."""

INTRODUCTION = """\
Each row is a run of {steps} steps on noise with the default controller, attached, frozen and cut as any run
is (without the shrink, so that the same weights can be asked before and after the cut).

- *kept*: multiply-adds of the cut model as a share of the dense one's, both counted by
  `torch.utils.flop_counter` on `meta` copies.
- *met*: at or below the budget and within 1 % of the model (or less than one channel or head below it,
  where one of them costs more than that), and the class predicted for each of 16 images is the same before
  and after the cut.
- *next unit*: what the cheapest channel or head more would have cost.
- *difference*: of any output across the cut, relative to the largest output; float32.
- *refused*: `attach` says before training that the budget can't be reached, and what can.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_several(parser, "--only", "only this model", choices=SUBJECTS)
    add_several(parser, "--keep", "only this budget", type=float)
    add_number(parser, "--steps", 20, "length of each run")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a budget was broken."""
    names, budgets = arguments.only or list(SUBJECTS), arguments.keep or list(BUDGETS)
    found: list[tuple[str, Kept]] = []
    with waiting(len(names) * len(budgets), "budget") as bar:
        for name, asked in itertools.product(names, budgets):
            bar.say(f"{name}, keep_flops={asked}")
            kept = measure_budget(SUBJECTS[name], asked, num_steps=arguments.steps, seed=arguments.seed)
            found.append((name, kept))
            bar.advance()
    bars = summarise([kept for _, kept in found])
    header = ("model", "keep_flops", "kept", "next unit", "difference", "same classes", "met")
    write_sheet(
        arguments.out,
        "Budget: is keep_flops kept",
        heading("torchvision", "timm", "trainonce", seeds=f"seed {arguments.seed}"),
        INTRODUCTION.format(steps=arguments.steps),
        bar_table(bars),
        "## Budgets",
        table(header, [_cells(*item) for item in found]),
    )
    return exit_code(bars)


def summarise(found: Sequence[Kept]) -> list[Bar]:
    """The bars over all models and budgets."""
    reached = [kept for kept in found if kept.found is not None]
    num_met, num_same = sum(kept.is_met for kept in reached), sum(kept.same_predictions for kept in reached)
    num_above = sum(kept.found > kept.asked for kept in reached if kept.found is not None)
    worst = max((kept.difference for kept in reached), default=0.0)
    return [
        count_bar("budgets met", num_met, len(reached), wanted="all that can be reached"),
        ("small models above their budget", "0", str(num_above), num_above == 0),
        count_bar("same classes before and after the cut", num_same, len(reached)),
        (
            "largest difference of an output across the cut",
            f"<= {LARGEST_DIFFERENCE:.0e}",
            f"{worst:.0e}",
            worst <= LARGEST_DIFFERENCE,
        ),
        ("budgets refused before training", "-", str(len(found) - len(reached)), True),
    ]


def _cells(name: str, kept: Kept) -> tuple[str, ...]:
    if kept.found is None:
        return name, f"{kept.asked:g}", "-", "-", "-", "-", f"refused: {kept.refusal}"
    unit = "-" if kept.next_unit is None else f"{kept.next_unit:.4f}"
    return (
        name,
        f"{kept.asked:g}",
        f"{kept.found:.4f}",
        unit,
        f"{kept.difference:.0e}",
        yes(kept.same_predictions),
        yes(kept.is_met),
    )
