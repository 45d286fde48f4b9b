"""The first lines of a run, its budget, its progress, and its policy by name."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

import trainonce
from support.moments import moment
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
from trainonce.cli import main
from trainonce.errors import RunInterruptedError, SettingError
from trainonce.pruning import policies
from trainonce.pruning.schedule import Schedule
from trainonce.recipes.run import Run, train
from trainonce.runs.folder import read_config
from trainonce.runs.report.live import NullView, draw
from trainonce.training import Settings, fit
from trainonce.training.policy_names import POLICIES, find_policy

NO_BUDGET = "no budget: pass keep_flops=0.5 (or keep_params), or keep_flops=1 to train the dense model"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_first_lines_say_what_is_trained_on_what(tmp_path: Path):
    view = Listener()
    result = fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", view=view)
    data, model, start, budget, run, few = view.lines[:6]
    assert data == "data: 64 training and 32 validation samples"
    assert model == (
        f"model: Net, {result.report['before']['macs'] / 1000:.2f} k FLOPs (multiply-adds of one "
        "sample), 4.11 k parameters"
    )
    assert start == "start: the model's own weights; defaults for training from scratch"
    assert (
        budget == f"budget: 50 % of the FLOPs, at most {0.5 * result.report['before']['macs'] / 1000:.2f} k"
    )
    threads = torch.get_num_threads()
    assert run.startswith("run: 6 epochs of 4 steps, batch size 16, SGD at learning rate 0.05, on cpu (")
    assert f"({threads} thread" in run
    assert few.startswith("few controller updates (")
    log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert all(line in log for line in view.lines[:6])


def test_what_data_says_about_itself_is_said():
    @dataclasses.dataclass
    class Described:
        train: object
        validation: object
        summary: tuple[str, ...] = (
            "64 images of 4 classes in photos",
            "split by name: 48 and 16; 64 pixels enlarged to 224",
        )

    view = Listener()
    fit(
        make_net(),
        Described(*make_data()),
        keep_params=0.8,
        settings=make_settings(keep_flops=None, epochs=2),
        view=view,
    )
    assert view.lines[:2] == [f"data: {line}" for line in Described.summary]
    assert view.lines[4].startswith("budget: 80 % of the parameters, at most ")


def test_the_command_says_it_on_stderr_and_quiet_says_nothing(capsys: pytest.CaptureFixture[str]):
    words = ["train", "digits.resnet20", "--epochs", "1", "--warmup-epochs", "0", "--keep-flops", "1"]
    assert main([*words, "--out", "loud"]) == 0
    out, err = capsys.readouterr()
    first = err.splitlines()
    assert any(line.startswith("data: ") and "1,437" in line and "360" in line for line in first[:3])
    assert any(line.startswith("model: cifar:resnet20, ") for line in first[:6])
    assert "budget: none, the dense model is trained" in first
    assert any(line.startswith("run: 1 epoch of 44 steps, batch size 32") for line in first)
    assert "report: loud/report.html" in out
    assert main([*words, "--out", "silent", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "small model: silent/small" in out
    assert "data: " in Path("silent/log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("settings", [None, Settings(), Settings(epochs=3)])
def test_a_budget_is_asked_for(settings: Settings | None, tmp_path: Path):
    with pytest.raises(SettingError, match=r"^no budget: ") as caught:
        fit(make_net(), make_data(), settings=settings, out=tmp_path / "run")
    assert str(caught.value).startswith(NO_BUDGET)
    assert not (tmp_path / "run").exists()
    with pytest.raises(SettingError, match=r"^no budget: "):
        train(Run(), out=None, resume=False, view=NullView())


@pytest.mark.parametrize("data", ["digits", "folder"])
def test_the_command_asks_for_a_budget_before_it_reads_data(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if data == "folder":
        for name in ("a", "b"):
            (tmp_path / "photos" / name).mkdir(parents=True)
            for number in range(6):
                Image.new("RGB", (40, 40), (40 * number, 0, 0)).save(
                    tmp_path / "photos" / name / f"{number}.png"
                )
    words = [
        "train",
        "--model",
        "cifar:resnet20",
        "--data",
        "digits" if data == "digits" else f"folder:{tmp_path / 'photos'}",
    ]
    assert main([*words, "--out", "run"]) == 2
    err = capsys.readouterr().err
    assert NO_BUDGET in err
    assert "--keep-flops 0.5" in err
    assert err.count("\n") == 1
    assert not Path("run").exists()


def test_progress_is_shown_unless_it_is_quiet(capsys: pytest.CaptureFixture[str]):
    fit(make_net(), make_data(), settings=make_settings(epochs=2))
    out, err = capsys.readouterr()
    assert out == ""
    assert "data: 64 training" in err
    assert "step 8/8" in err
    fit(make_net(), make_data(), settings=make_settings(epochs=2), quiet=True)
    assert capsys.readouterr() == ("", "")


def test_a_run_with_a_folder_has_a_page_and_a_card(tmp_path: Path):
    fit(make_net(), make_data(), settings=make_settings(epochs=3), out=tmp_path / "run", quiet=True)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "<h1>Net</h1>" in page
    card = (tmp_path / "run" / "small" / "README.md").read_text(encoding="utf-8")
    assert "trainonce.load" in card
    assert "where `model` is Net" in card
    assert "`trainonce.fit` with the settings in config.yaml" in card


def test_few_updates_are_said_in_epochs_and_that_many_are_enough():
    view = Listener()
    fit(make_net(), make_data(), settings=make_settings(), view=view)
    (line,) = [line for line in view.lines if "few controller updates" in line]
    enough = int(line.partition("; ")[2].split()[0])
    assert "the choice of channels stays close to its starting point" in line
    assert "random" not in line
    for epochs, is_enough in ((enough, True), (enough - 1, False)):
        assert (Schedule().in_steps(4 * epochs).num_updates >= 50) == is_enough
    # A policy that learns nothing has no updates to lack.
    view = Listener()
    fit(make_net(), make_data(), settings=make_settings(policy="filter_norm"), view=view)
    assert not [line for line in view.lines if "few controller updates" in line]


def test_the_demo_does_not_begin_with_an_apology(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "digits.resnet20", "--epochs", "1", "--warmup-epochs", "0", "--out", "run"]) == 0
    lines = capsys.readouterr().err.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("few controller updates")]
    assert place >= 4
    assert len(lines[place]) < 140


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_can_be_named(name: str):
    result = fit(make_net(), make_data(), settings=make_settings(epochs=4, policy=name), quiet=True)
    assert result.report["after"]["macs"] <= 0.5 * result.report["before"]["macs"]
    assert result.report["agreement"]["num_same"] == 32
    assert result.report["config"]["policy"] == name


def test_the_default_policy_is_the_default_of_attach():
    named = fit(make_net(), make_data(), settings=make_settings(policy="controller"), quiet=True)
    assert same_weights(named.model, fit(make_net(), make_data(), settings=make_settings(), quiet=True).model)
    assert type(find_policy("controller")) is type(find_policy(Settings().policy))


def test_a_policy_can_be_an_object_and_must_come_again(tmp_path: Path):
    class Mine(policies.FilterNorm):
        pass

    settings = make_settings()
    whole = fit(make_net(), make_data(), settings=settings, policy=Mine(), quiet=True)
    named = fit(make_net(), make_data(), settings=make_settings(policy="filter_norm"), quiet=True)
    assert same_weights(whole.model, named.model)
    with pytest.raises(RunInterruptedError):
        fit(
            make_net(),
            make_data(),
            settings=settings,
            policy=Mine(),
            loss=Counter({9}, interrupt),
            out=tmp_path / "run",
            quiet=True,
        )
    assert read_config(tmp_path / "run")["policy"] == "Mine"
    with pytest.raises(SettingError, match=r"policy is 'controller', .* started with 'Mine'"):
        fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    result = fit(
        make_net(),
        make_data(),
        settings=settings,
        policy=Mine(),
        out=tmp_path / "run",
        resume=True,
        quiet=True,
    )
    assert same_weights(result.model, whole.model)


def test_the_command_takes_a_policy(capsys: pytest.CaptureFixture[str]):
    words = ["train", "digits.resnet20", "--epochs", "1", "--warmup-epochs", "0", "--quiet"]
    assert main([*words, "--policy", "taylor", "--out", "run"]) == 0
    assert read_config(Path("run"))["policy"] == "taylor"
    capsys.readouterr()
    assert main([*words, "--policy", "tailor", "--out", "other"]) == 2
    assert "unknown policy 'tailor'. Did you mean taylor?" in capsys.readouterr().err


def test_titles_are_shown_as_they_are():
    console = Console(file=io.StringIO(), width=100)
    console.print(draw(moment(), "net [v2] on [/x] data"))
    assert "net [v2] on [/x] data" in console.file.getvalue()


def test_a_run_of_before_the_setting_goes_on(tmp_path: Path):
    settings = make_settings()
    stop_run(tmp_path / "run", at=9, settings=settings)
    config = tmp_path / "run" / "config.yaml"
    lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("policy:")), encoding="utf-8")
    assert trainonce.fit(
        make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True
    ).report
