"""`python -m benchmarks shapes`: shapes of equal FLOPs from scratch.

Writes `benchmarks/results/shapes.md` and a figure beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.options import add_run_options, configurations, said_seeds, said_sizes
from benchmarks.accuracy.runs import run_and_record
from benchmarks.accuracy.summary import Results, said_failure, said_origin, said_spread
from benchmarks.images import load_images
from benchmarks.plots import Panel, write_png
from benchmarks.shapes.catalogue import EXPONENTS, SHAPES, TRUNKS, shape_name
from benchmarks.sheet import RESULTS, heading_of_runs, table, write_sheet

_HEADER = (
    "shape",
    "training loss",
    "spread",
    "accuracy, %",
    "seeds",
    "FLOPs",
    "parameters",
    "widths (seed 0)",
    "remark",
)

_INTRODUCTION = """\
ResNet-{depth}, {images}{num_images}, {epochs} epoch(s), batches of {batch}, recipe and batches as in `python -m benchmarks accuracy`.
Nothing is pruned while it trains: an untrained model is cut to the shape, its weights are drawn anew, and it trains as the dense one does.
So this is about how a budget is shared among layers, not about which channels stay.

- *trunk*: of `trainonce.policies.Capacity`. The stream of each stage, which several layers read, keeps up to this many times the share
  that a layer inside a block keeps; 1: as much. *exponent*: a layer's share grows with its weights per FLOP to this power; above 0 late
  layers stay wide, below it early ones. Widths are rounded as by `attach`, unless it says otherwise.
- *training loss*: mean over the last epoch, on the augmented training images; the smaller, the faster it learned. *spread*: of seeds.
- *accuracy*: of the last epoch on the test set; too noisy to tell near shapes apart.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument(
        "--shape", choices=SHAPES, action="append", default=[], help="only this one; may be given again"
    )
    add_run_options(parser)
    parser.set_defaults(epochs=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "shapes.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing; write the tables and the figure of all that is there."""
    images = load_images(arguments.data)
    names = arguments.shape or list(SHAPES)
    wanted = configurations(arguments, names, images)
    rows, failures = run_and_record(wanted, arguments)
    found = [result for results in rows.values() for result in results]
    lines = [
        "# Which shape learns fastest at equal FLOPs",
        "",
        *heading_of_runs(found, seeds=said_seeds(arguments)),
        "",
    ]
    lines.append(_INTRODUCTION.format(**said_sizes(arguments, images)))
    budgets = sorted({keep for _, keep in rows}, reverse=True)
    for keep in budgets:
        cells = [_cells(name, rows[name, keep], arguments.seeds, failures) for name in names]
        lines += [f"## keep_flops = {keep:g}", "", *table(_HEADER, cells), ""]
    if panels := [panel for keep in budgets if (panel := _panel(rows, keep)).lines]:
        figure = arguments.out.with_suffix("") / "shapes.png"
        write_png(figure, panels, title="Training loss by shape")
        lines.append(f"![training loss by exponent]({figure.parent.name}/{figure.name})")
    write_sheet(arguments.out, lines)
    return 1 if failures else 0


def _cells(name: str, results: Results, num_seeds: int, failures: Mapping[str, str]) -> tuple[str, ...]:
    words = CONTENDERS[name].words
    if not results:
        return words, "-", "-", "-", f"0 of {num_seeds}", "-", "-", "-", said_failure(name, failures)
    losses = [result["log"][-1]["loss"] for result in results]
    return (
        words,
        f"{mean(losses):.3f}",
        said_spread(losses),
        f"{mean(result['accuracy'] for result in results):.2f}",
        f"{len(results)} of {num_seeds}",
        f"{mean(result['share_of_flops'] for result in results):.3f}",
        f"{mean(result['share_of_parameters'] for result in results):.3f}",
        " ".join(str(width) for width in results[0]["widths"].values()),
        said_origin(name, results),
    )


def _panel(rows: Mapping[tuple[str, float], Results], keep: float) -> Panel:
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
