"""`trainonce evaluate`: takes a run's folder, measures the small model in it on the validation data."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from trainonce.artifact import load
from trainonce.data.catalogue import DataSet
from trainonce.recipes.run import Run, build_run_model, check_run, open_run_data, run_from
from trainonce.training.evaluation import CrossEntropy, evaluate
from trainonce.training.limits import BadSetting
from trainonce.training.precision import choose_precision
from trainonce.training.processes import Processes, choose_device
from trainonce.training.run_folder import SMALL, read_config


def add_commands(commands: Any) -> None:
    """Add `evaluate`."""
    parser = commands.add_parser(
        "evaluate",
        help="measure a run's small model on the validation data",
        description="Measure a run's small model on the validation data: top-1, top-5 and loss.",
    )
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for other programs")
    parser.set_defaults(run=_evaluate)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command on a finished run takes."""
    parser.add_argument("folder", metavar="RUN", type=Path, help="the folder that trainonce train wrote")
    parser.add_argument("--data-dir", metavar="FOLDER", help="where the data's files are, if not where they were")
    parser.add_argument("--device", metavar="DEVICE", default="auto", help="where to compute: auto, cpu, cuda (default: auto)")


def open_run(arguments: argparse.Namespace) -> tuple[Run, DataSet]:
    """The configuration and the data of a run that a command names."""
    folder: Path = arguments.folder
    if not (folder / "config.yaml").is_file():
        raise BadSetting(f"there is no run in {folder}. Give the folder that trainonce train wrote, which holds config.yaml.")
    changes = {} if arguments.data_dir is None else {"data_dir": arguments.data_dir}
    run = run_from(read_config(folder) | changes | {"device": arguments.device}, Run())
    check_run(run)
    return run, open_run_data(run)


def load_small(run: Run, data: DataSet, folder: Path) -> nn.Module:
    """The small model of a run, in eval mode."""
    if not (folder / SMALL).is_dir():
        raise BadSetting(f"the run in {folder} has no small model yet. Go on with trainonce train --resume {folder}.")
    return load(folder / SMALL, into=build_run_model(run, data)).eval()


def _evaluate(arguments: argparse.Namespace) -> None:
    run, data = open_run(arguments)
    device = choose_device(run.device)
    model = load_small(run, data, arguments.folder).to(device)
    precision = choose_precision(device, amp=False, amp_dtype=run.amp_dtype)
    scores = evaluate(
        model, data.validation, batch_size=run.batch_size, device=device, precision=precision, loss=CrossEntropy(), processes=Processes()
    )
    if arguments.json:
        sys.stdout.write(json.dumps(asdict(scores)) + "\n")
        return
    parts = [f"{name} {value:.2f} %" for name, value in (("top-1", scores.top1), ("top-5", scores.top5)) if value is not None]
    sys.stdout.write(f"{', '.join([*parts, f'loss {scores.loss:.4f}'])} on {scores.num_samples} samples of {run.data}\n")
