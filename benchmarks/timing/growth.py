"""`python -m benchmarks growth`: models of growing size.

Writes `benchmarks/results/growth.md`, a figure and data beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

import numpy
import torch
from torch import nn

import trainonce
from benchmarks.coverage.scale import warm_up
from benchmarks.sheets.options import add_number, add_several
from benchmarks.sheets.plots import Panel, write_png
from benchmarks.sheets.sheet import figure_lines, heading, table, write_csv, write_sheet
from benchmarks.sheets.waiting import waiting
from benchmarks.timing.families import FAMILIES, Subject
from trainonce.pruning.pulling.projection import Projection, Proximal
from trainonce.pruning.schedule import Strength
from trainonce.pruning.units import Units

INTRODUCTION = """\
Times are CPU seconds of all threads: on one thread and an idle machine those are seconds, and other work
disturbs them less.

- *inspect*: `trainonce.inspect`, which also proves what it found; once per run. Median of {repeats} after
  one that is not counted.
- *projection*: one pull of half of all units, chosen at random, as after each optimizer step of the search.
  Median of {pulls}.
- *optimizer*: one step of SGD with momentum on all parameters; *of optimizer*: what the projection adds to
  it.
- *growth*: the exponent of the straight line through a family's points on logarithmic axes: 1 means twice
  the parameters, twice the time.
- On `meta` there are no weights, so nothing is pulled. ResNets see one image of 32 x 32, ViTs one of 224 x
  224, the decoders 128 tokens.
"""


_HEADER = (
    *("model", "parameters", "groups", "units"),
    *("inspect, s", "projection, ms", "optimizer, ms", "of optimizer"),
)
_COLUMNS = (
    *("family", "model", "parameters", "groups", "units"),
    *("inspect_seconds", "projection_seconds", "optimizer_seconds"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_several(parser, "--family", "only this one", choices=FAMILIES)
    parser.add_argument("--members", type=int, metavar="N", help="only the smallest N of each (default: all)")
    add_number(parser, "--repeats", 3, "inspections of each model")
    add_number(parser, "--pulls", 30, "projections of each model")


def run(arguments: argparse.Namespace) -> int:
    """Measure from small to large and write the sheet."""
    subjects = [
        subject for name in arguments.family or FAMILIES for subject in FAMILIES[name][: arguments.members]
    ]
    warm_up()
    found: list[Growth] = []
    with waiting(len(subjects), "growth") as bar:
        for subject in subjects:
            bar.say(subject.name)
            found.append(measure_growth(subject, num_repeats=arguments.repeats, num_pulls=arguments.pulls))
            bar.advance()
    figure = arguments.out.with_suffix("") / "growth.png"
    write_csv(figure.with_suffix(".csv"), _COLUMNS, map(_data, found))
    panels = [
        Panel("parameters", f"{what}, CPU seconds", _lines(found, what), is_log=True)
        for what in ("inspect", "projection")
    ]
    write_png(figure, [panel for panel in panels if panel.lines], title="Time by size")
    write_sheet(
        arguments.out,
        "Growth of inspection and projection with the model",
        heading("torchvision", "transformers", "trainonce"),
        INTRODUCTION.format(repeats=arguments.repeats, pulls=arguments.pulls),
        table(_HEADER, map(_cells, found)),
        table(("family", "growth of inspect", "growth of projection"), _exponents(found)),
        figure_lines("time by size", figure, has_data=True),
    )
    return 0


def _cells(found: Growth) -> tuple[object, ...]:
    sizes = (
        found.subject.name,
        f"{found.num_parameters:,}",
        found.num_groups,
        found.num_units,
        f"{found.inspect:.2f}",
    )
    if found.projection is None or found.optimizer is None:
        return (*sizes, "-", "-", "-")
    return (
        *sizes,
        f"{1000 * found.projection:.2f}",
        f"{1000 * found.optimizer:.2f}",
        f"{found.projection / found.optimizer:.2f}",
    )


def _lines(found: Sequence[Growth], what: str) -> dict[str, list[list[tuple[float, float]]]]:
    """One line for each family that has the quantity."""
    lines: dict[str, list[list[tuple[float, float]]]] = {}
    for one in found:
        if (seconds := getattr(one, what)) is not None:
            lines.setdefault(one.subject.family, [[]])[0].append((one.num_parameters, seconds))
    return lines


def _exponents(found: Sequence[Growth]) -> list[tuple[str, ...]]:
    lines = {what: _lines(found, what) for what in ("inspect", "projection")}
    families = dict.fromkeys(one.subject.family for one in found)
    return [(family, *(_slope(lines[what].get(family, [[]])[0]) for what in lines)) for family in families]


def _slope(points: Sequence[tuple[float, float]]) -> str:
    if len(points) < 2:
        return "-"
    return f"{linear_regression(*numpy.log(list(zip(*points, strict=True))).tolist()).slope:.2f}"


def _data(found: Growth) -> tuple[object, ...]:
    sizes = (found.num_parameters, found.num_groups, found.num_units)
    times = (found.inspect, found.projection, found.optimizer)
    return found.subject.family, found.subject.name, *sizes, *times


@dataclass(frozen=True, slots=True)
class Growth:
    """What was found on one model, in CPU seconds of all threads."""

    subject: Subject
    num_parameters: int
    num_groups: int
    num_units: int
    inspect: float
    projection: float | None
    """One pull of half of all units, as in the search; None on `meta`."""

    optimizer: float | None
    """One step of SGD with momentum on all parameters, to compare with."""


def measure_growth(subject: Subject, *, num_repeats: int, num_pulls: int) -> Growth:
    """Inspect a few times, pull many times."""
    model, example = subject.build()
    partition = trainonce.inspect(model, example)
    inspect = _median_seconds(lambda: trainonce.inspect(model, example), num_repeats)
    units = Units.of(partition, [name for name, _ in model.named_parameters()])
    projection = optimizer = None
    if not any(parameter.is_meta for parameter in model.parameters()):
        projection, optimizer = _measure_pull(model, units, num_pulls)
    return Growth(
        subject, partition.num_parameters, len(partition.groups), len(units), inspect, projection, optimizer
    )


def _measure_pull(model: nn.Module, units: Units, num_pulls: int) -> tuple[float, float]:
    tensors = dict(model.named_parameters())
    for parameter in tensors.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(tensors.values(), lr=1e-3, momentum=0.9)
    optimizer.step()
    projection = Projection(units, tensors, optimizer)
    projection.select(torch.rand(len(units), generator=torch.Generator().manual_seed(0)) < 0.5)
    strength = Strength()
    floor = projection.mean_norms() * strength.floor
    pull = Proximal()
    return (
        _median_seconds(lambda: projection.apply(pull, strength.searching, floor=floor), num_pulls),
        _median_seconds(optimizer.step, num_pulls),
    )


def _median_seconds(work: Callable[[], object], num_times: int) -> float:
    seconds = []
    for _ in range(num_times):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return median(seconds)
