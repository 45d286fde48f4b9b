"""`python -m benchmarks dropped`: the timm suite once more, with drop_path and dropout on in training.

Writes `benchmarks/results/dropped.md`: the share that can be cut must be the same with them and without.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass

import timm
import torch

import trainonce
from benchmarks.coverage.calls import SEED, reason_of
from benchmarks.coverage.coverage import is_wanted
from benchmarks.coverage.suites import list_models
from benchmarks.sheets import sheet
from benchmarks.sheets.options import add_several
from trainonce.zoo.inputs import draw_image

_RATE = 0.2
_LARGEST_SIZE = 256

INTRODUCTION = (
    "*without*, *with*: share of the multiply-adds that would go if each group kept one channel, with "
    f"the rates that the model takes at 0 and at {_RATE}."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One model: what can be cut without and with chances, and which of them it takes."""

    name: str
    family: str
    without: float = 0.0
    share: float = 0.0
    rates: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_same(self) -> bool:
        """Whether chances take nothing from what can be cut."""
        return not self.problem and self.share == self.without


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    words = "only this model, or those that match a pattern such as 'resnet*'"
    add_several(parser, "--only", words, metavar="NAME")


def run(arguments: argparse.Namespace) -> int:
    """Inspect every model twice."""
    rows = []
    for subject in list_models("timm"):
        if is_wanted(subject, arguments.only):
            rows.append(measure(subject.source.partition(":")[2], subject.kind))
            print(" | ".join(_cells(rows[-1])), flush=True)
    bars = [sheet.count_bar("the same share with and without", sum(row.is_same for row in rows), len(rows))]
    sheet.write_sheet(
        arguments.out,
        "Dropped: what can be cut with drop_path and dropout on",
        sheet.heading("timm"),
        INTRODUCTION,
        sheet.bar_table(bars),
        sheet.table(("model", "family", "rates", "without", "with", "same"), map(_cells, rows)),
    )
    return sheet.exit_code(bars)


def measure(name: str, family: str) -> Row:
    """One model with its rates at zero, then above."""
    try:
        without = _prunable_share(name, {})
        for rates in (("drop_path_rate", "drop_rate"), ("drop_path_rate",), ("drop_rate",)):
            try:
                share = _prunable_share(name, dict.fromkeys(rates, _RATE))
            except TypeError:
                continue
            return Row(name, family, without, share, rates)
    except Exception as error:
        return Row(name, family, problem=reason_of(error))
    return Row(name, family, without, without)


def _prunable_share(name: str, rates: dict[str, float]) -> float:
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = timm.create_model(name, pretrained=False, **rates)
        made_for = model.pretrained_cfg
        channels, height, width = made_for["input_size"]
        if not made_for.get("fixed_input_size", False):
            height, width = min(height, _LARGEST_SIZE), min(width, _LARGEST_SIZE)
        partition = trainonce.inspect(model, draw_image(1, channels, height, width))
    return partition.prunable_macs / partition.macs


def _cells(row: Row) -> tuple[str, ...]:
    shares = (f"{row.without:.4f}", f"{row.share:.4f}") if not row.problem else (row.problem, "")
    return (row.name, row.family, ", ".join(row.rates) or "none", *shares, sheet.yes(row.is_same))
