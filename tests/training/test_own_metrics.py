"""Metrics of the user's own: they see all of the validation data, and one that fails costs nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from support.runs import Listener, make_data, make_net, make_settings, stop_run
from trainonce.errors import SettingError
from trainonce.runs.folder import read_config
from trainonce.training import fit


class Streaming:
    """Counts as torchmetrics does: in batches, and never in two evaluations at once."""

    def __init__(self) -> None:
        self.right = self.count = self.resets = 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.right += int((outputs.argmax(1) == targets).sum())
        self.count += len(targets)

    def compute(self) -> dict[str, Tensor]:
        return {"share": torch.tensor(self.right / self.count), "count": torch.tensor(self.count)}

    def reset(self) -> None:
        self.resets += 1
        self.right = self.count = 0


def share_right(outputs: Tensor, targets: Tensor) -> float:
    assert len(outputs) == 32
    return float((outputs.argmax(1) == targets).float().mean())


def test_a_metric_of_the_users_own_sees_the_whole_validation_data(tmp_path: Path):
    settings, view = make_settings(epochs=3), Listener()
    result = fit(
        make_net(), make_data(), settings=settings, metric=share_right, out=tmp_path / "run", view=view
    )
    assert [record["metrics"] for record in result.history] == [
        {"share_right": pytest.approx(record["top1"] / 100)} for record in result.history
    ]
    metric = Streaming()
    again = fit(make_net(), make_data(), settings=settings, metric=metric, quiet=True)
    assert [record["metrics"]["share"] for record in again.history] == pytest.approx(
        [record["metrics"]["share_right"] for record in result.history]
    )
    assert again.history[0]["metrics"]["count"] == 32
    assert metric.resets >= 3
    page = (tmp_path / "run" / "report.html").read_text()
    assert ">share_right<" in page
    header, *rows = (tmp_path / "run" / "summary.csv").read_text().splitlines()
    assert header.endswith(",share_right")
    assert [float(row.rpartition(",")[2]) for row in rows] == pytest.approx(
        [record["metrics"]["share_right"] for record in result.history]
    )
    assert "metric" not in read_config(tmp_path / "run")


def explode(outputs: Tensor, targets: Tensor) -> float:
    raise RuntimeError("only one class\nis there")


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (explode, "no explode in this epoch: RuntimeError: only one class is there"),
        (lambda outputs, targets: "good", "no metric in this epoch: metric must return a number"),
        (lambda outputs, targets: {}, "no metric in this epoch: metric must return a number.*got 0 numbers"),
        (lambda outputs, targets: outputs, "no metric in this epoch: .*got Tensor"),
    ],
)
def test_a_metric_that_fails_is_told_and_loses_nothing(metric: Any, words: str):
    view = Listener()
    result = fit(make_net(), make_data(), settings=make_settings(epochs=2), metric=metric, view=view)
    told = [line for line in view.lines if line.startswith("no ")]
    assert len(told) == 2
    assert re.match(words, told[0])
    assert all(line.isprintable() for line in told)
    assert "metrics" not in result.history[-1]
    assert result.history[-1]["top1"] is not None


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (Streaming, r"metric is the class Streaming\. Pass an instance, Streaming\(\)"),
        ("accuracy", "metric must be a function of outputs and targets, or an object with update"),
        (3, "metric must be a function"),
    ],
)
def test_what_is_no_metric_is_refused_in_one_line(metric: Any, words: str):
    with pytest.raises(SettingError, match=words):
        fit(make_net(), make_data(), settings=make_settings(), metric=metric, quiet=True)


def test_a_resumed_run_has_the_metrics_of_all_its_epochs(tmp_path: Path):
    settings = make_settings(epochs=3)
    stop_run(tmp_path / "run", at=8, settings=settings)
    result = fit(
        make_net(),
        make_data(),
        settings=settings,
        metric=share_right,
        out=tmp_path / "run",
        resume=True,
        quiet=True,
    )
    assert [("metrics" in record) for record in result.history] == [False, True, True]
