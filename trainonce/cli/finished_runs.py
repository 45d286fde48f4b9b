"""Finished runs: the settings, data and small model of a run's folder, for the commands that use them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torch import nn

from trainonce.cli.trust import add_trust_flag, check_trust
from trainonce.data.catalogue import DataSet
from trainonce.errors import SettingError
from trainonce.recipes.run import Run, build_run_model, check_run, open_kept_data, run_from
from trainonce.runs.folder import CONFIG, SMALL, read_config
from trainonce.storage.artifact import load
from trainonce.training.limits import limits_of
from trainonce.training.results.outcome import note_data
from trainonce.zoo.names import how_to_resume

GIVEN = ("model", "data", "data_dir", "device")


def add_run_arguments(parser: argparse.ArgumentParser, *, device: str = "auto") -> None:
    """Add the arguments of every command on a finished run."""
    parser.add_argument("folder", metavar="RUN", type=Path, help="folder of a run (with config.yaml)")
    parser.add_argument("--model", metavar="MODEL", help="the model, if the run was made by trainonce.fit")
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="the data, if the run was made by trainonce.fit, or another data set with the same classes",
    )
    parser.add_argument(
        "--data-dir", metavar="FOLDER", help="folder of the data set's files, if they have moved"
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        default=device,
        help=f"device: auto, cpu, cuda, cuda:1, mps (default: {device})",
    )
    add_trust_flag(parser)


def open_run(arguments: argparse.Namespace) -> tuple[Run, DataSet]:
    """The settings and the data of the run that a command was given."""
    folder: Path = arguments.folder
    if not (folder / CONFIG).is_file():
        raise SettingError(
            f"there is no run in {folder}. Pass a folder that trainonce train wrote (with {CONFIG})."
        )
    given = {name: getattr(arguments, name) for name in GIVEN if getattr(arguments, name) is not None}
    config = _complete(read_config(folder), given, folder)
    if "model" not in given:
        check_trust(config.get("model"), file=folder / CONFIG, is_trusted=arguments.trust_code)
    run = run_from(config | given, Run())
    check_run(run)
    if not (folder / SMALL).is_dir():
        raise SettingError(
            f"the run in {folder} has no small model yet. Resume it with {how_to_resume(folder, config)}."
        )
    return run, open_kept_data(run, folder, is_named=bool(given.keys() & {"data", "data_dir"}))


def load_small(run: Run, data: DataSet, folder: Path) -> nn.Module:
    """The small model of a run, in eval mode."""
    small = load(folder / SMALL, into=build_run_model(run, data)).eval()
    # Folders of earlier versions don't carry it.
    note_data(small, data)
    return small


def _complete(config: dict[str, Any], given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration; SettingError if nothing names the model and the data, rather than wrong defaults."""
    if "model" in config and "data" in config:
        return config
    if missing := [
        f"--{name} {example}"
        for name, example in (("model", "package.module:function"), ("data", "NAME"))
        if name not in config and name not in given
    ]:
        raise SettingError(
            f"the run in {folder} was made by trainonce.fit, which doesn't record how the model was built. "
            f"Pass {' and '.join(missing)}."
        )
    # config= of fit may hold more than settings.
    return {name: value for name, value in config.items() if name in limits_of(Run)}
