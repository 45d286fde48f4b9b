"""`python -m benchmarks int8`: trains two models, exports them in int8, and compares accuracy and time.

Writes `benchmarks/results/int8.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.children import child_environment
from benchmarks.sheets.options import add_number
from benchmarks.sheets.sheet import ROOT, Bar, bar_table, exit_code, heading, table, write_sheet

MOST_POINTS_LOST = 1.0
LARGEST_TIME = 0.6

RUNS: Mapping[str, Sequence[str]] = {
    "ResNet-20 of the demo": ("digits.resnet20",),
    "MobileNetV2": (
        *("--model", "cifar:mobilenet_v2", "--data", "digits", "--img-size", "32", "--keep-flops", "0.5"),
        *("--batch-size", "32", "--lr", "0.05", "--nesterov", "--weight-decay", "1e-4"),
        *("--warmup-epochs", "0.5"),
    ),
}
"""The command that makes each run; MobileNetV2 is told its epochs as well."""

INTRODUCTION = """\
Each run is trained once, then exported by `trainonce export --int8`, several times: all three models run in
ONNX Runtime on the CPU in turns, on one thread.

- *ms*: 10th percentile of the calls of one export, then the median over the exports.
- *time*: of small int8, as a share of the small float model's in the same export; median, least and most.
- *accuracy*: top-1 on the 360 validation images of scikit-learn's digits, so that one image is 0.28 points.
"""

_HEADER = ("model", "batch", "dense ms", "small ms", "int8 ms", "time", "least to most")


@dataclass(frozen=True, slots=True)
class Found:
    """What all exports of one run said."""

    name: str
    exports: Sequence[Mapping[str, Any]]

    @property
    def last(self) -> Sequence[Mapping[str, Any]]:
        """Dense, small and small int8."""
        return self.exports[-1]["standings"]

    @property
    def batch_sizes(self) -> list[str]:
        return list(self.last[0]["milliseconds"])

    def low(self, which: int, size: str) -> list[float]:
        """One number per export."""
        return [export["standings"][which]["milliseconds"][size]["low"] for export in self.exports]

    def shares(self, size: str) -> list[float]:
        """The time of int8, of the small float model's."""
        return [int8 / small for small, int8 in zip(self.low(1, size), self.low(2, size), strict=True)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_number(parser, "--epochs", 10, "of MobileNetV2")
    add_number(parser, "--repeats", 3, "exports of each run")
    parser.add_argument(
        "--runs", type=Path, metavar="PATH", help="keep the trained runs here, and use those that are there"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bar is missed."""
    found = []
    with _folder(arguments.runs) as folder:
        for number, (name, words) in enumerate(RUNS.items()):
            place = folder / f"run{number}"
            more = () if number == 0 else ("--epochs", str(arguments.epochs))
            if not (place / "report.json").is_file():
                _call("train", *words, *more, "--quiet", "--out", str(place), "--resume", "auto")
            found.append(Found(name, [_export(place) for _ in range(arguments.repeats)]))
    bars = judge(found)
    write_sheet(
        arguments.out,
        "int8",
        heading("trainonce", "onnxruntime", "onnx"),
        INTRODUCTION,
        bar_table(bars),
        "## Time",
        table(_HEADER, [row for one in found for row in _times(one)]),
        "## Accuracy and size",
        table(
            ("model", "small", "small int8", "dense kB", "small kB", "int8 kB", "ranges", "layers in int8"),
            [_sizes(one) for one in found],
        ),
    )
    return exit_code(bars)


def judge(found: Sequence[Found]) -> list[Bar]:
    """Accuracy of each model, and its time at each batch size."""
    bars: list[Bar] = []
    for one in found:
        _, small, int8 = (standing["top1"] for standing in one.last)
        bars.append(
            (
                f"{one.name}: accuracy of small int8 and of small",
                f"at most {MOST_POINTS_LOST:g} point lower",
                f"{int8:.2f} % and {small:.2f} %",
                int8 >= small - MOST_POINTS_LOST,
            )
        )
        for size in one.batch_sizes:
            share = statistics.median(one.shares(size))
            what = f"{one.name}: time of small int8, of small, at batch {size}"
            bars.append((what, f"<= {LARGEST_TIME}", f"{share:.2f}", share <= LARGEST_TIME))
    return bars


def _times(one: Found) -> Iterator[tuple[str, ...]]:
    for size in one.batch_sizes:
        lows = [f"{statistics.median(one.low(which, size)):.3f}" for which in range(3)]
        shares = one.shares(size)
        spread = f"{min(shares):.2f} to {max(shares):.2f}"
        yield one.name, size, *lows, f"{statistics.median(shares):.2f}", spread


def _sizes(one: Found) -> tuple[str, ...]:
    dense, small, int8 = one.last
    kilobytes = [f"{standing['bytes'] / 1000:.0f}" for standing in (dense, small, int8)]
    tops = [f"{standing['top1']:.2f} %" for standing in (small, int8)]
    last = one.exports[-1]
    layers = f"{last['num_layers']}, {len(last['left_in_float'])} in float"
    return one.name, *tops, *kilobytes, last["ranges"], layers


def _export(place: Path) -> Mapping[str, Any]:
    """What one export keeps in the run's report."""
    with tempfile.TemporaryDirectory() as folder:
        _call("export", str(place), "--int8", "--out", f"{folder}/model.onnx")
    return json.loads((place / "report.json").read_text())["int8"]


def _call(*words: str) -> None:
    command = [sys.executable, "-m", "trainonce", *words]
    subprocess.run(command, cwd=ROOT, env=child_environment(threads=1), check=True)


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
