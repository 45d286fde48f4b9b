"""`trainonce export` and `trainonce bench`: a run's small model as a file, and its latency."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from trainonce.cli.finished_runs import add_run_arguments, load_small, open_run
from trainonce.cli.printing import say, show, show_json
from trainonce.deployment.benching import LARGEST_BATCH, Bench, bench
from trainonce.deployment.exporting import export_artifact, export_onnx, export_program
from trainonce.engines.runtimes import ENGINES
from trainonce.engines.timing import Milliseconds
from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line
from trainonce.recipes.run import build_run_model
from trainonce.runs.report.table import as_title
from trainonce.training.loop.processes import choose_device

ENDINGS = {"onnx": "model.onnx", "pt2": "model.pt2", "safetensors": "exported"}


def add_commands(commands: Any) -> None:
    """Add `export` and `bench`."""
    parser = commands.add_parser(
        "export",
        help="export a run's small model to ONNX, torch.export or safetensors",
        description=("Export a run's small model, and compare the file with it on every validation sample."),
    )
    add_run_arguments(parser, device="cpu")
    parser.add_argument(
        "--format",
        choices=tuple(ENDINGS),
        default="onnx",
        help="onnx, pt2 (torch.export) or safetensors (what trainonce.load reads); default: onnx",
    )
    parser.add_argument("--out", metavar="PATH", type=Path, help="output path (default: in the run's folder)")
    parser.set_defaults(run=_export)
    parser = commands.add_parser(
        "bench",
        help="measure the latency of a run's small model",
        description=(
            "Measure latency and throughput of the dense and the small model, in turns, in several engines."
        ),
    )
    add_run_arguments(parser)
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        nargs="+",
        default=list(ENGINES),
        help="eager, compiled (torch.compile), onnxruntime; default: all",
    )
    parser.add_argument(
        "--batch-size",
        "-b",
        metavar="N",
        type=int,
        nargs="+",
        default=[1, 64],
        help="batch sizes to measure (default: 1 64)",
    )
    parser.add_argument(
        "--seconds",
        metavar="X",
        type=float,
        default=5.0,
        help="seconds per engine and batch size (default: 5)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_bench)


def _export(arguments: argparse.Namespace) -> None:
    device = choose_device(arguments.device)
    path = arguments.out or arguments.folder / ENDINGS[arguments.format]
    if os.path.lexists(path):
        raise SettingError(f"{path} exists already. Remove it, or pass another --out.")
    run, data = open_run(arguments)
    small = load_small(run, data, arguments.folder).to(device)
    if arguments.format == "onnx":
        found = export_onnx(small, data.validation, path)
    elif arguments.format == "pt2":
        found = export_program(small, data.validation, path)
    else:
        found = export_artifact(small, data.validation, path, build=lambda: build_run_model(run, data))
    say(
        f"{found.path}: same classes on all {found.num_samples} validation samples, largest difference "
        f"{found.largest_difference:.1e}"
    )


def _bench(arguments: argparse.Namespace) -> None:
    if min(arguments.batch_size) < 1 or max(arguments.batch_size) > LARGEST_BATCH:
        raise SettingError(f"--batch-size must be at least 1 and at most {LARGEST_BATCH}.")
    if not 0 < arguments.seconds <= 3600:
        raise SettingError("--seconds must be above 0 and at most 3600.")
    device = choose_device(arguments.device)
    run, data = open_run(arguments)
    image = next(iter(data.validation.batches([(torch.arange(1), 0)])))[0]
    found = bench(
        build_run_model(run, data),
        load_small(run, data, arguments.folder),
        image,
        batch_sizes=tuple(arguments.batch_size),
        engines=tuple(arguments.engine),
        seconds=arguments.seconds,
        device=device,
        say=lambda line: print(line, file=sys.stderr),
    )
    if not found.rows:
        raise SettingError(f"nothing could be measured ({in_one_line('; '.join(found.left_out), 600)}).")
    if arguments.json:
        show_json(asdict(found))
    else:
        show(_as_table(found, run.model))


def _as_table(found: Bench, title: str) -> Table:
    table = Table(
        title=as_title(f"{title}: {100 * found.keep_flops:.1f} % of the FLOPs, on {_place(found.device)}"),
        title_justify="left",
        box=None,
    )
    for name in ("engine", "batch", "dense ms", "small ms", "images/s", "speed-up", "saved"):
        table.add_column(name, justify="left" if name == "engine" else "right", no_wrap=True)
    for row in found.rows:
        table.add_row(
            row.engine,
            str(row.batch_size),
            _with_spread(row.dense),
            _with_spread(row.small),
            f"{1000 * row.batch_size / row.small.median:.0f}",
            f"{row.speed_up:.2f}x",
            f"{100 * row.share_of(found.keep_flops):.0f} %",
        )
    table.caption = Text(
        "\n".join(
            [
                "median, below it 10th to 90th percentile; images/s: small model; saved: reduction in "
                "latency as a fraction of the reduction in FLOPs"
            ]
            + [f"left out: {line}" for line in found.left_out]
        ),
        style="table.caption",
    )
    return table


def _place(device: str) -> str:
    if device != "cpu":
        return device
    threads = torch.get_num_threads()
    return f"cpu with {threads} thread{'' if threads == 1 else 's'}"


def _with_spread(found: Milliseconds) -> str:
    # On two lines: side by side, the columns would not fit into 80 characters.
    return f"{found.median:.2f}\n{found.low:.2f}-{found.high:.2f}"
