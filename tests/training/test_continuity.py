"""A run that could not be saved or could not begin is refused at once and leaves nothing behind.

What differs when it goes on is said.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainonce
from support.runs import (
    Counter,
    Listener,
    Net,
    interrupt,
    make_data,
    make_net,
    make_settings,
    same_weights,
    stop_run,
)
from trainonce.errors import RunInterruptedError, SettingError
from trainonce.pruning import policies
from trainonce.training import fit, stages
from trainonce.training.resuming.continuity import changed_environment


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.name != ".lock")


class Secretive(torch.optim.SGD):
    """Has state that no file can hold: from the start in a group, or from the first step on."""

    def __init__(self, parameters: Any, *, is_late: bool) -> None:
        super().__init__(parameters, lr=0.01, momentum=0.9)
        self.is_late = is_late
        if not is_late:
            self.param_groups[0]["memory"] = object()

    def step(self, closure: Any = None) -> Any:
        done = super().step(closure)
        if self.is_late:
            self.state[self.param_groups[0]["params"][0]]["memory"] = object()
        return done


class Forgetful(policies.FilterNorm):
    def state_dict(self) -> dict[str, Any]:
        return {"memory": object()}


class Hoarder(Net):
    def get_extra_state(self) -> Any:
        return {"beside": 1}

    def set_extra_state(self, state: Any) -> None: ...


@pytest.mark.parametrize("is_late", [False, True])
def test_an_optimizer_that_can_not_be_saved_is_refused_at_once_and_leaves_nothing(
    is_late: bool, tmp_path: Path
):
    loss = Counter(set(), interrupt)
    make = lambda parameters: Secretive(parameters, is_late=is_late)  # noqa: E731
    with pytest.raises(
        SettingError,
        match=r"this run can't be saved: optimizer/.*memory is a object, which can't be saved",
    ) as caught:
        fit(
            make_net(),
            make_data(),
            settings=make_settings(),
            optimizer=make,
            loss=loss,
            out=tmp_path / "run",
            quiet=True,
        )
    assert "\n" not in str(caught.value)
    assert loss.calls == int(is_late)
    assert left_in(tmp_path / "run") == []
    # Without a folder there is nothing to save.
    assert fit(make_net(), make_data(), settings=make_settings(epochs=2), optimizer=make, quiet=True).report
    assert fit(
        make_net(), make_data(), settings=make_settings(epochs=2), out=tmp_path / "run", quiet=True
    ).report


@pytest.mark.parametrize("kind", ["policy", "model"])
def test_a_policy_or_model_that_can_not_be_saved_is_refused_before_training(kind: str, tmp_path: Path):
    torch.manual_seed(0)
    model, policy = (Net(), Forgetful()) if kind == "policy" else (Hoarder(), None)
    loss = Counter(set(), interrupt)
    with pytest.raises(
        ValueError, match="can't be saved" if kind == "policy" else "get_extra_state"
    ) as caught:
        fit(
            model,
            make_data(),
            settings=make_settings(),
            policy=policy,
            loss=loss,
            out=tmp_path / "run",
            quiet=True,
        )
    assert "\n" not in str(caught.value)
    assert loss.calls == 0
    assert left_in(tmp_path / "run") == []


def fail(value: Any) -> Any:
    raise RuntimeError("of the user's own")


@pytest.mark.parametrize("kind", ["budget", "first step"])
def test_a_run_that_could_not_begin_leaves_its_folder_free(kind: str, tmp_path: Path):
    changes = {"keep_flops": 0.0001} if kind == "budget" else {}
    loss = Counter({1}, fail) if kind == "first step" else None
    with pytest.raises((trainonce.BudgetError, RuntimeError)):
        fit(
            make_net(),
            make_data(),
            settings=make_settings(**changes),
            loss=loss,
            out=tmp_path / "run",
            quiet=True,
        )
    assert left_in(tmp_path / "run") == []
    assert fit(
        make_net(), make_data(), settings=make_settings(epochs=2), out=tmp_path / "run", quiet=True
    ).report


def test_a_run_that_fails_later_keeps_what_it_has(tmp_path: Path):
    with pytest.raises(RuntimeError, match="own"):
        fit(
            make_net(),
            make_data(),
            settings=make_settings(),
            loss=Counter({8}, fail),
            out=tmp_path / "run",
            quiet=True,
        )
    assert {"config.yaml", "checkpoints", "log.txt"} <= set(left_in(tmp_path / "run"))
    whole = fit(make_net(), make_data(), settings=make_settings(), quiet=True)
    result = fit(
        make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True, quiet=True
    )
    assert same_weights(result.model, whole.model)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["make_optimizer", "_make_trainer", "describe_environment"])
def test_a_signal_while_a_run_is_set_up_stops_it_in_order(
    number: signal.Signals, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real, loss = getattr(stages, place), Counter(set(), interrupt)

    def signalled(*words: Any, **named: Any) -> Any:
        os.kill(os.getpid(), number)
        return real(*words, **named)

    with monkeypatch.context() as patch:
        patch.setattr(stages, place, signalled)
        with pytest.raises(RunInterruptedError, match="interrupted at step 1 of 24"):
            fit(
                make_net(), make_data(), settings=make_settings(), loss=loss, out=tmp_path / "run", quiet=True
            )
    assert loss.calls == 1
    result = fit(
        make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True, quiet=True
    )
    assert same_weights(
        result.model, fit(make_net(), make_data(), settings=make_settings(), quiet=True).model
    )


def test_the_environment_names_what_results_depend_on(tmp_path: Path):
    fit(make_net(), make_data(), settings=make_settings(epochs=2), out=tmp_path / "run", quiet=True)
    found = json.loads((tmp_path / "run" / "env.json").read_text(encoding="utf-8"))
    assert found["trainonce"] == trainonce.__version__
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    for name in ("torchvision", "timm"):
        package = pytest.importorskip(name)
        assert found[name] == package.__version__.partition("+")[0] or found[name] == package.__version__


@pytest.mark.parametrize("is_damaged", [False, True])
def test_another_environment_is_said_when_a_run_goes_on(is_damaged: bool, tmp_path: Path):
    settings, file = make_settings(), tmp_path / "run" / "env.json"
    stop_run(tmp_path / "run", at=5, settings=settings)
    before = json.loads(file.read_text(encoding="utf-8")) | {"threads": 64, "torch": "1.0.0"}
    file.write_text("{" if is_damaged else json.dumps(before), encoding="utf-8")
    view = Listener()
    with pytest.raises(RunInterruptedError):
        fit(
            make_net(),
            make_data(),
            settings=settings,
            loss=Counter({5}, interrupt),
            out=tmp_path / "run",
            resume=True,
            view=view,
        )
    said = [line for line in view.lines if "since the run started" in line]
    if is_damaged:
        assert said == []
    else:
        threads = torch.get_num_threads()
        changes = f"torch 1.0.0 -> {torch.__version__}, threads 64 -> {threads}"
        assert said == [
            f"environment changed since the run started: {changes}; results may differ by rounding"
        ]


def test_the_same_environment_is_not_worth_a_word(tmp_path: Path):
    view = Listener()
    stop_run(tmp_path / "run", at=5)
    fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True, view=view)
    assert not [line for line in view.lines if "since the run started" in line]


@pytest.mark.timeout(20)
def test_a_strangers_environment_is_not_waited_for_nor_printed_as_it_is(tmp_path: Path):
    file = tmp_path / "env.json"
    now = {"torch": "2.0"}
    os.mkfifo(file)
    assert changed_environment(file, now) == []
    file.unlink()
    for content in ("[" * 100_000, '{"torch": ' + "[" * 5000, "\udcff"):
        file.write_bytes(content.encode("utf-8", "surrogateescape"))
        assert changed_environment(file, now) == []
    file.write_text(json.dumps({"torch": "\x1b[2J" + "x" * 5000}))
    (line,) = changed_environment(file, now)
    assert line.isprintable()
    assert len(line) < 200


def test_a_model_that_can_not_be_copied_is_trained_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def refuse(model: nn.Module) -> nn.Module:
        raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol")

    monkeypatch.setattr(stages, "keep_copy", refuse)
    view = Listener()
    result = fit(make_net(), make_data(), settings=make_settings(), view=view)
    assert result.report["after"]["macs"] <= 0.5 * result.report["before"]["macs"]
    assert result.report["agreement"] is None
    assert sum("can't be copied" in line for line in view.lines) == 1
