"""Loggers: what takes the numbers of a run to W&B, MLflow, TensorBoard or a place of your own.

A logger is any object with the three methods of `Logger`. It hears from the first process only, of each
epoch once; a resumed run tells it all epochs again.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from trainonce.errors import SettingError
from trainonce.runs.scalars import Scalars, check_installed

__all__ = ["Logger", "MLflow", "TensorBoard", "Wandb"]

_METRICS = "metrics/"
_MOST_AT_ONCE = 100
"""Parameters in one call of MLflow."""

_NOT_IN_MLFLOW = re.compile(r"[^\w. /-]")
"""What its names can't have: the percent sign of one metric would end the logging of all others."""


@runtime_checkable
class Logger(Protocol):
    """Receives the numbers of a run."""

    def start(self, config: Mapping[str, Any]) -> None:
        """Called once, before training, with all settings as plain values."""
        ...

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Called after each epoch: loss, top1, lr, keep_flops and others; metrics as `metrics/NAME`."""
        ...

    def finish(self, summary: Mapping[str, float]) -> None:
        """Called once at the end, with the results of the small model; empty if the run has failed."""
        ...


class Wandb:
    """Logs to Weights & Biases; the options are those of `wandb.init`, such as project and name.

    Without options, a W&B run that is already active is used, and left open.
    """

    def __init__(self, **options: Any) -> None:
        check_package("wandb")
        self._options = options
        self._run: Any = None
        self._is_own = True

    def start(self, config: Mapping[str, Any]) -> None:
        """Start a W&B run."""
        wandb = importlib.import_module("wandb")
        self._is_own = bool(self._options) or wandb.run is None
        if self._is_own:
            self._run = wandb.init(**({"config": dict(config)} | self._options))
        else:
            self._run = wandb.run
            self._run.config.update(dict(config), allow_val_change=True)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of an epoch."""
        self._run.log(dict(numbers), step=step)

    def finish(self, summary: Mapping[str, float]) -> None:
        """Write the summary and end the run, as failed if there is none."""
        self._run.summary.update(dict(summary))
        if self._is_own:
            self._run.finish(exit_code=0 if summary else 1)


class MLflow:
    """Logs to MLflow, wherever it is configured to.

    Without an experiment, an MLflow run that is already active is used, and left open; if there is none,
    one is started in the experiment named by MLFLOW_EXPERIMENT_NAME.
    """

    def __init__(
        self, *, experiment: str | None = None, run_name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        check_package("mlflow")
        self._experiment, self._run_name, self._uri = experiment, run_name, tracking_uri
        self._client: Any = None
        self._run_id = ""
        self._is_own = True

    def start(self, config: Mapping[str, Any]) -> None:
        """Start an MLflow run; an experiment that doesn't exist is created."""
        mlflow = importlib.import_module("mlflow")
        entities = importlib.import_module("mlflow.entities")
        self._client = mlflow.MlflowClient(tracking_uri=self._uri)
        active = mlflow.active_run() if self._experiment is None else None
        self._is_own = active is None
        run = active or self._client.create_run(self._experiment_id(), run_name=self._run_name)
        self._run_id = run.info.run_id
        params = [entities.Param(_mlflow_name(name), str(value)) for name, value in config.items()]
        for first in range(0, len(params), _MOST_AT_ONCE):
            self._client.log_batch(self._run_id, params=params[first : first + _MOST_AT_ONCE])

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of an epoch."""
        for name, number in numbers.items():
            self._client.log_metric(self._run_id, _mlflow_name(name), number, step=step)

    def finish(self, summary: Mapping[str, float]) -> None:
        """Write the summary and end the run, as failed if there is none."""
        for name, number in summary.items():
            self._client.log_metric(self._run_id, _mlflow_name(f"small/{name}"), number)
        if self._is_own:
            self._client.set_terminated(self._run_id, status="FINISHED" if summary else "FAILED")

    def _experiment_id(self) -> str:
        name = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        found = self._client.get_experiment_by_name(name)
        return found.experiment_id if found else self._client.create_experiment(name)


class TensorBoard:
    """Writes TensorBoard events into `folder`/tensorboard; `Settings(tensorboard=True)` does so for a run."""

    def __init__(self, folder: str | Path) -> None:
        check_installed()
        self._folder = Path(folder)
        self._records: list[dict[str, Any]] = []
        self._scalars: Scalars | None = None

    def start(self, config: Mapping[str, Any]) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._scalars = Scalars(self._folder)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of an epoch."""
        own = {name[len(_METRICS) :]: value for name, value in numbers.items() if name.startswith(_METRICS)}
        self._records.append({**numbers, "step": step, "metrics": own})
        assert self._scalars is not None
        self._scalars.write(self._records)

    def finish(self, summary: Mapping[str, float]) -> None:
        """Close the file."""
        if self._scalars is not None:
            self._scalars.close()


def check_package(name: str) -> None:
    """Raise SettingError if the package of that name is not installed."""
    if importlib.util.find_spec(name) is None:
        raise SettingError(f"{name} is not installed. Install it with pip install {name}, or leave it out.")


def _mlflow_name(name: str) -> str:
    """The name as MLflow takes it: a path of plain characters."""
    parts = _NOT_IN_MLFLOW.sub("_", name).split("/")
    return "/".join(part for part in parts if part not in ("", ".", "..")) or "_"
