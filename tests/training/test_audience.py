"""Callbacks are called at the turning points, loggers are told every epoch, and neither can spoil a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import trainonce
from support.runs import (
    Counter,
    Listener,
    interrupt,
    make_data,
    make_net,
    make_settings,
    same_weights,
    stop_run,
)
from trainonce.errors import RunInterruptedError, SettingError
from trainonce.training import Callback, RunState, fit


class Witness(Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def on_train_begin(self, state: RunState) -> None:
        self.seen.append(("begin", state.epoch, state.step, state.total_steps, dict(state.record)))

    def on_epoch_end(self, state: RunState) -> None:
        torch.rand(3)
        self.seen.append(("epoch", state.epoch, state.step, state.epochs, state.record["epoch"]))

    def on_cut(self, state: RunState) -> None:
        self.seen.append(("cut", sum(parameter.numel() for parameter in state.model.parameters())))

    def on_train_end(self, result: Any) -> None:
        self.seen.append(("end", result))


def test_callbacks_see_begin_epochs_cuts_and_end_and_change_no_bit(tmp_path: Path):
    witness, settings = Witness(), make_settings(epochs=4)
    plain = fit(make_net(), make_data(), settings=settings, quiet=True)
    result = fit(make_net(), make_data(), settings=settings, callbacks=[witness], quiet=True)
    assert same_weights(plain.model, result.model)
    assert witness.seen[0] == ("begin", 0, 0, 16, {})
    epochs = [event for event in witness.seen if event[0] == "epoch"]
    assert epochs == [("epoch", number, 4 * number, 4, number) for number in range(1, 5)]
    sizes = [event[1] for event in witness.seen if event[0] == "cut"]
    assert len(sizes) == 2
    assert sizes[0] > sizes[1] == sum(parameter.numel() for parameter in result.model.parameters())
    assert witness.seen[-1] == ("end", result)


def test_an_object_with_one_of_the_methods_is_enough():
    class Few:
        def __init__(self) -> None:
            self.records: list[Mapping[str, Any]] = []

        def on_epoch_end(self, state: RunState) -> None:
            self.records.append(state.record)

    few = Few()
    result = fit(make_net(), make_data(), settings=make_settings(epochs=2), callbacks=[few], quiet=True)
    assert few.records == list(result.history)


def test_a_callback_that_fails_ends_the_run_which_goes_on_from_there(tmp_path: Path):
    class Fails(Callback):
        def on_epoch_end(self, state: RunState) -> None:
            if state.epoch == 2:
                raise LookupError("mine")

    settings = make_settings(epochs=4)
    with pytest.raises(LookupError, match="mine"):
        fit(make_net(), make_data(), settings=settings, callbacks=[Fails()], out=tmp_path / "run", quiet=True)
    witness = Witness()
    again = fit(
        make_net(),
        make_data(),
        settings=settings,
        callbacks=[witness],
        out=tmp_path / "run",
        resume=True,
        quiet=True,
    )
    assert witness.seen[0][:3] == ("begin", 2, 8)
    assert same_weights(again.model, fit(make_net(), make_data(), settings=settings, quiet=True).model)


class Misspelt:
    def on_epoch_finished(self, state: RunState) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"callbacks": Witness()}, "callbacks must be a list of objects, got Witness"),
        ({"callbacks": [Witness]}, r"callbacks has the class Witness\. Pass an instance: Witness\(\)"),
        (
            {"callbacks": [Misspelt()]},
            "Misspelt has on_epoch_finished, which is never called. The methods are on",
        ),
        ({"callbacks": [3]}, "the callback int has no method"),
        ({"loggers": "wandb"}, "loggers must be a list of objects, got str"),
        ({"loggers": ["wandb"]}, "the logger str is not an object with the methods start, log and finish"),
        ({"loggers": [trainonce.loggers.TensorBoard]}, "the logger TensorBoard is not an object"),
    ],
)
def test_what_would_never_be_called_is_refused_in_one_line(arguments: dict[str, Any], words: str):
    with pytest.raises(SettingError, match=words):
        fit(make_net(), make_data(), settings=make_settings(), quiet=True, **arguments)


class Ledger:
    """A logger of the user's own."""

    def __init__(self, fails_at: str = "") -> None:
        self.fails_at = fails_at
        self.config: Mapping[str, Any] = {}
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.summaries: list[dict[str, float]] = []

    def start(self, config: Mapping[str, Any]) -> None:
        self._fail("start")
        self.config = config

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._fail("log")
        self.rows.append((step, dict(numbers)))

    def finish(self, summary: Mapping[str, float]) -> None:
        self._fail("finish")
        self.summaries.append(dict(summary))

    def _fail(self, where: str) -> None:
        if self.fails_at == where:
            raise ConnectionError("the server\nis away")


def agree(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return 0.25


def test_a_logger_is_told_settings_epochs_and_the_small_model():
    ledger, settings = Ledger(), make_settings(epochs=3)
    result = fit(make_net(), make_data(), settings=settings, metric=agree, loggers=[ledger], quiet=True)
    assert (ledger.config["epochs"], ledger.config["keep_flops"]) == (3, 0.5)
    assert [step for step, _ in ledger.rows] == [4, 8, 12]
    for (_, numbers), record in zip(ledger.rows, result.history, strict=True):
        assert numbers["top1"] == record["top1"]
        assert numbers["metrics/agree"] == 0.25
        assert "top5" not in numbers
    (summary,) = ledger.summaries
    assert summary["macs"] == result.report["after"]["macs"]
    assert summary["agree"] == 0.25


def test_a_resumed_run_tells_all_epochs_and_one_that_stops_has_no_summary(tmp_path: Path):
    settings, stopped, ledger = make_settings(epochs=3), Ledger(), Ledger()
    with pytest.raises(RunInterruptedError):
        fit(
            make_net(),
            make_data(),
            settings=settings,
            loss=Counter({9}, interrupt),
            loggers=[stopped],
            out=tmp_path / "run",
            quiet=True,
        )
    assert stopped.summaries == [{}]
    result = fit(
        make_net(),
        make_data(),
        settings=settings,
        loggers=[ledger],
        out=tmp_path / "run",
        resume=True,
        quiet=True,
    )
    assert [numbers["loss"] for _, numbers in ledger.rows] == [record["loss"] for record in result.history]


@pytest.mark.parametrize("where", ["log", "finish"])
def test_a_logger_that_fails_is_told_once_and_costs_nothing(where: str):
    ledger, other, view, settings = Ledger(where), Ledger(), Listener(), make_settings(epochs=3)
    result = fit(make_net(), make_data(), settings=settings, loggers=[ledger, other], view=view)
    assert same_weights(result.model, fit(make_net(), make_data(), settings=settings, quiet=True).model)
    assert len(other.rows) == 3
    told = [line for line in view.lines if "Ledger" in line]
    if where == "log":
        (line,) = told
        assert line.startswith("the logger Ledger has failed (ConnectionError: the server is away). Training")
        assert len(ledger.summaries) == 1, "its run must not stay open"


def test_a_logger_that_can_not_start_ends_the_run_before_it_begins(tmp_path: Path):
    with pytest.raises(
        SettingError, match=r"Ledger can't start \(ConnectionError: the server is away\)\. Set"
    ):
        fit(
            make_net(),
            make_data(),
            settings=make_settings(),
            loggers=[Ledger("start")],
            out=tmp_path / "run",
            quiet=True,
        )
    assert not (tmp_path / "run" / "config.yaml").exists()
    stop_run(tmp_path / "run", at=2)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda found, *rest: None if found == name else find(found)
    )
    with pytest.raises(SettingError, match=f"{name} is not installed. Install it with pip install {name}"):
        fit(make_net(), make_data(), settings=make_settings(**{name: True}), quiet=True)
