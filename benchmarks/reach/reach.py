"""`python -m benchmarks reach`: how little of a model's FLOPs can remain, and why the rest must stay.

Writes `benchmarks/results/reach.md`.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from dataclasses import dataclass
from fnmatch import fnmatch

import torch

import trainonce
from benchmarks.coverage.calls import (
    SEED,
    in_precision,
    largest_difference,
    reason_of,
    run_quietly,
    warm_up,
)
from benchmarks.coverage.reasons import costliest_reasons
from benchmarks.coverage.subject import redraw_weights
from benchmarks.reach.families import FAMILIES, Family
from benchmarks.sheets import sheet
from benchmarks.sheets.options import add_several
from trainonce.execution.precision import InDouble

INTRODUCTION = """
Small models of other people's families with random weights. *remains*: share of the multiply-adds that
is left when every group that may be cut keeps one channel. *difference*: largest difference of any
output between the silenced and the cut model in float64, half of every group dropped, relative to that
output's largest value; what a model does in float32 on purpose (norms, rotations) is done in float64 as
well. *kept because*: the reasons that the most multiply-adds depend on, each with the share that would
go if the groups kept for it could lose all but one channel. Rows that say *streams* were inspected with
`streams=True`: channels under a LayerNorm may go.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What was found for one family."""

    family: Family
    remains: float
    difference: float
    seconds: float
    reasons: tuple[str, ...]
    problem: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it is exact and little enough remains."""
        return (
            not self.problem
            and self.difference <= 1e-9
            and (self.family.at_most is None or self.remains <= self.family.at_most)
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    words = "only this family, or those that match a pattern such as 'Qwen*'"
    add_several(parser, "--only", words, metavar="NAME")


def run(arguments: argparse.Namespace) -> int:
    """Measure the families that were asked for, one after the other."""
    warm_up()
    wanted = [
        family
        for family in FAMILIES
        if not arguments.only or any(fnmatch(family.name, pattern) for pattern in arguments.only)
    ]
    rows = []
    for family in wanted:
        rows.append(measure(family))
        print(" | ".join(_cells(rows[-1])), flush=True)
    header = ("family", "remains", "bar", "met", "difference", "inspect s", "kept because")
    sheet.write_sheet(
        arguments.out,
        "Reach: how little of a model can remain",
        sheet.heading("torchvision", "timm", "transformers"),
        INTRODUCTION,
        sheet.table(header, map(_cells, rows)),
    )
    return 0


def measure(family: Family) -> Row:
    """Inspect one model, cut half of every group, compare."""
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model, example = family.build()
            model.eval()
            redraw_weights(model)
            started = time.perf_counter()
            partition = trainonce.inspect(model, example, streams=family.streams)
            seconds = time.perf_counter() - started
            plan = trainonce.Plan.random(partition, keep=0.5, seed=SEED)
            model, example = copy.deepcopy(model).double(), in_precision(example, torch.float64)
            trainonce.silence(model, plan)
            with InDouble():
                before = run_quietly(model, example)
            trainonce.cut(model, plan.without_example())
            with InDouble():
                difference = largest_difference(before, run_quietly(model, example))
        except Exception as error:
            return Row(family, 1.0, float("inf"), 0.0, (), reason_of(error))
    remains = 1 - partition.prunable_macs / partition.macs
    return Row(family, remains, difference, seconds, tuple(costliest_reasons(partition)))


def _cells(row: Row) -> tuple[str, ...]:
    bar = "" if row.family.at_most is None else f"<= {row.family.at_most:.2f}"
    return (
        row.family.name,
        f"{row.remains:.3f}",
        bar,
        sheet.yes(row.is_met),
        f"{row.difference:.0e}",
        f"{row.seconds:.1f}",
        row.problem or "; ".join(row.reasons),
    )
