"""TensorBoard, W&B and MLflow themselves get the numbers of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import trainonce
from support.runs import make_data, make_net, make_settings
from trainonce.training import Callback, RunState, fit


def agree(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return 0.25


def test_tensorboard_is_a_logger_too(tmp_path: Path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = trainonce.loggers.TensorBoard(tmp_path / "board")
    settings = make_settings(epochs=2)
    result = fit(make_net(), make_data(), settings=settings, metric=agree, loggers=[logger], quiet=True)
    events = accumulator.EventAccumulator(str(tmp_path / "board" / "tensorboard")).Reload()
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(
        [record["loss"] for record in result.history]
    )
    assert [(event.step, event.value) for event in events.Scalars("metrics/agree")] == [(4, 0.25), (8, 0.25)]


@pytest.fixture
def wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    return module


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_gets_the_epochs(wandb_offline: Any, tmp_path: Path):
    kept: list[Any] = []
    logger = trainonce.loggers.Wandb(project="tests")

    class Looks(Callback):
        def on_epoch_end(self, state: RunState) -> None:
            run = wandb_offline.run
            kept.append((run.step, run.config["epochs"], run.summary.get("loss")))

    result = fit(
        make_net(),
        make_data(),
        settings=make_settings(epochs=2),
        loggers=[logger],
        callbacks=[Looks()],
        quiet=True,
    )
    # W&B adds a step to its summary when the next one comes.
    assert kept == [(4, 2, None), (8, 2, pytest.approx(result.history[0]["loss"]))]
    assert wandb_offline.run is None
    # Its service writes when it likes, and at the latest when it is ended.
    wandb_offline.teardown()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"macs" in file.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_the_epochs(tmp_path: Path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    logger = trainonce.loggers.MLflow(experiment="tests", tracking_uri=uri)
    settings = make_settings(epochs=2)
    result = fit(make_net(), make_data(), settings=settings, loggers=[logger], quiet=True)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    assert run.info.status == "FINISHED"
    assert json.loads(run.data.params["epochs"]) == 2
    found = client.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value) for one in found] == [
        (record["step"], pytest.approx(record["loss"])) for record in result.history
    ]
    assert run.data.metrics["small/macs"] == result.report["after"]["macs"]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_takes_any_name_of_a_metric(tmp_path: Path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    logger = trainonce.loggers.MLflow(experiment="tests", tracking_uri=uri)
    names = {"recall (%)": 1.0, "F1 @ 0.5": 2.0, "../../up//": 3.0, "seg/iou": 4.0}
    fit(
        make_net(),
        make_data(),
        settings=make_settings(epochs=2),
        metric=lambda outputs, targets: names,
        loggers=[logger],
        quiet=True,
    )
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    assert run.info.status == "FINISHED"
    for place in ("metrics", "small"):
        found = {name: run.data.metrics[f"{place}/{name}"] for name in ("recall ___", "F1 _ 0.5", "up")}
        assert found == {"recall ___": 1.0, "F1 _ 0.5": 2.0, "up": 3.0}
        assert run.data.metrics[f"{place}/seg/iou"] == 4.0
