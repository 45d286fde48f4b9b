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
from torch import nn

from trainonce.cli.finished_runs import add_run_arguments, load_small, open_run
from trainonce.cli.printing import say, show, show_json
from trainonce.data.catalogue import DataSet
from trainonce.deployment.benching import LARGEST_BATCH, Bench, bench
from trainonce.deployment.exporting import export_artifact, export_onnx, export_program
from trainonce.deployment.quantizing import export_int8
from trainonce.engines.runtimes import ENGINES
from trainonce.engines.timing import Milliseconds
from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line
from trainonce.recipes.run import Run, build_run_model, open_plain_training_data
from trainonce.runs.folder import REPORT, read_config, room_in
from trainonce.runs.report.int8 import as_int8_table
from trainonce.runs.report.outline import top1_of
from trainonce.runs.report.table import as_title
from trainonce.runs.report.writing import keep_report, read_report, write_report
from trainonce.training.loop.processes import choose_device

INT8_FILE = "model.int8.onnx"
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
    parser.add_argument(
        "--int8",
        action="store_true",
        help=(
            "quantize the ONNX file to int8, calibrated on the run's training data; also prints accuracy, "
            "milliseconds and size of the dense, the small and the int8 model"
        ),
    )
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
    if arguments.int8 and arguments.format != "onnx":
        raise SettingError(f"--int8 writes ONNX, not {arguments.format}. Pass --format onnx.")
    device = choose_device(arguments.device)
    if arguments.int8 and device.type != "cpu":
        raise SettingError("--int8 runs on the CPU only. Pass --device cpu.")
    ending = INT8_FILE if arguments.int8 else ENDINGS[arguments.format]
    path = arguments.out or arguments.folder / ending
    if os.path.lexists(path):
        raise SettingError(f"{path} exists already. Remove it, or pass another --out.")
    run, data = open_run(arguments)
    small = load_small(run, data, arguments.folder).to(device)
    if arguments.int8:
        _export_int8(arguments, path, run, data, small)
        return
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


def _export_int8(
    arguments: argparse.Namespace, path: Path, run: Run, data: DataSet, small: nn.Module
) -> None:
    """Write the int8 file, print the table, and keep it in the run's report."""
    folder: Path = arguments.folder
    # A report that can't be read is told before minutes are spent.
    report = read_report(folder) if (folder / REPORT).is_file() else None
    found = export_int8(
        small,
        build_run_model(run, data),
        path,
        calibration=open_plain_training_data(run, folder),
        validation=data.validation,
        dense_top1=top1_of((report or {}).get("baseline")),
        say=lambda line: print(line, file=sys.stderr),
    )
    # What other data says is not about this run.
    own = read_config(folder).get("data", run.data)
    if report is not None and own == run.data:
        with room_in(folder):
            kept = report | {"int8": found.to_data()}
            keep_report(folder, kept)
            write_report(folder, kept)
    show(as_int8_table(found.to_data(), title=f"{run.model} on {run.data}"))
    say(f"{found.path}: written")


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
    if found.is_interrupted:
        # The rows are printed; the exit code says that some are missing.
        raise KeyboardInterrupt


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
