"""`python -m benchmarks shapes`: shapes of equal FLOPs from scratch.

Writes `benchmarks/results/shapes.md` and a figure beside it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.sheets.options import add_several
from benchmarks.sheets.plots import Panel, write_png
from benchmarks.sheets.sheet import figure_lines, write_sheet
from benchmarks.training.catalogue import EXPONENTS, SHAPES, TRUNKS, shape_name
from benchmarks.training.options import add_run_options, configurations
from benchmarks.training.regimes import REGIMES
from benchmarks.training.runs import run_and_record
from benchmarks.training.summary import Rows, result_cells, result_table

_HEADER = (
    *("shape", "training loss", "spread", "accuracy, %", "seeds", "FLOPs", "parameters"),
    *("widths (seed 0)", "remark"),
)

SHORTER = replace(REGIMES["short"], epochs=2)

INTRODUCTION = """\
ResNet-{depth}, {images}{num_images}, {epochs} epoch(s), batches of {batch}, recipe and batches as in
`python -m benchmarks accuracy`. Nothing is pruned while it trains: an untrained model is cut to the shape,
its weights are drawn anew, and it trains as the dense one does. So this is about how a budget is shared
among layers, not about which channels stay.

- *trunk*: of `trainonce.policies.Capacity`. The stream of each stage, which several layers read, keeps up
  to this many times the share that a layer inside a block keeps; 1: as much. *exponent*: a layer's share
  grows with its weights per FLOP to this power; above 0 late layers stay wide, below it early ones. Widths
  are rounded as by `attach`, unless it says otherwise.
- *training loss*: mean over the last epoch, on the augmented training images; the smaller, the faster it
  learned. *spread*: of seeds.
- *accuracy*: of the last epoch on the test set; too noisy to tell near shapes apart.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_several(parser, "--shape", "only this one", choices=SHAPES)
    add_run_options(parser, SHORTER)


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing; write the tables and the figure of all that is there."""
    names = arguments.shape or list(SHAPES)
    rows, failures, head = run_and_record(configurations(arguments, SHORTER, names), arguments, INTRODUCTION)
    blocks: list[str | list[str]] = []
    budgets = sorted({keep for _, keep in rows}, reverse=True)
    for keep in budgets:
        cells = []
        for name in names:
            found = rows[name, keep]
            widths = " ".join(map(str, found[0]["widths"].values())) if found else "-"
            common = result_cells(name, found, arguments.seeds, failures, spread_of="loss")
            cells.append(common | {"widths (seed 0)": widths})
        blocks += [f"## keep_flops = {keep:g}", result_table(_HEADER, cells)]
    if panels := [panel for keep in budgets if (panel := _panel(rows, keep)).lines]:
        figure = arguments.out.with_suffix("") / "shapes.png"
        write_png(figure, panels, title="Training loss by shape")
        blocks.append(figure_lines("training loss by exponent", figure))
    write_sheet(arguments.out, "Which shape learns fastest at equal FLOPs", *head, *blocks)
    return 1 if failures else 0


def _panel(rows: Rows, keep: float) -> Panel:
    """The loss by exponent, a line for each trunk; the band is over the seeds."""
    lines: dict[str, list[list[tuple[float, float]]]] = {}
    for trunk in TRUNKS:
        by_seed: dict[int, list[tuple[float, float]]] = {}
        for exponent in EXPONENTS:
            for result in rows.get((shape_name(trunk, exponent), keep), ()):
                by_seed.setdefault(result["configuration"]["seed"], []).append(
                    (exponent, result["log"][-1]["loss"])
                )
        if by_seed:
            lines[f"keep_flops = {keep:g}, trunk {trunk}"] = list(by_seed.values())
    return Panel("exponent", "training loss", lines)
