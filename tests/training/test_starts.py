"""Where a run starts from decides its defaults, is said, and is not needed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from support.runs import (
    Counter,
    Listener,
    interrupt,
    make_data,
    make_net,
    make_settings,
    same_weights,
)
from trainonce.cli import main
from trainonce.errors import BudgetError, RunInterruptedError, SettingError, WeightsError
from trainonce.pruning.schedule import EARLY
from trainonce.recipes.catalogue import find_recipe
from trainonce.recipes.run import Run, run_from
from trainonce.runs.folder import read_config
from trainonce.training import Settings, fit
from trainonce.training.starts import DEPENDENT, FINE_TUNING, FROM_SCRATCH
from trainonce.zoo.sources import Build, build


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save({"state_dict": make_net(5).state_dict()}, tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def defaults(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in DEPENDENT}


@pytest.mark.parametrize("opt", ["sgd", "adamw", "rmsprop"])
@pytest.mark.parametrize("kind", [Settings, Run])
def test_the_start_decides_the_defaults_and_what_is_set_wins(kind: type, opt: str):
    assert defaults(kind(opt=opt)) == FROM_SCRATCH.defaults(opt)
    for start in ({"pretrained": True}, {"weights": "a.pth"}):
        assert defaults(kind(opt=opt, **start)) == FINE_TUNING.defaults(opt)
        changed = kind(opt=opt, lr=0.1, settle_from=0.45, **start)
        assert (changed.lr, changed.settle_from) == (0.1, 0.45)
        assert changed.search_from == FINE_TUNING.search_from


def test_fine_tuning_is_gentler_and_cuts_at_once():
    assert FINE_TUNING.lr < FROM_SCRATCH.lr
    assert FINE_TUNING.adaptive_lr < FROM_SCRATCH.adaptive_lr
    assert FINE_TUNING.search_from < FROM_SCRATCH.search_from
    assert FINE_TUNING.settle_from == FINE_TUNING.first_cut_from < FROM_SCRATCH.search_from
    assert FINE_TUNING.zero_within < FROM_SCRATCH.zero_within


def test_the_page_has_every_default_that_differs():
    page = (Path(__file__).parents[2] / "docs" / "fine-tuning.md").read_text()
    for name in sorted(DEPENDENT):
        both = [getattr(start, name) for start in (FROM_SCRATCH, FINE_TUNING)]
        if name == "first_cut_from":
            both[0] = EARLY
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert (both[0] == both[1]) or rows
        for row in rows:
            found = [cell.split()[0].strip("`") for cell in row.split("|")[2:4]]
            assert (found if name == "policy" else [float(number) for number in found]) == both
    adaptive = (
        f"({FROM_SCRATCH.adaptive_lr:g} for Adam, AdamW and NAdam) |",
        f"({FINE_TUNING.adaptive_lr:.4f})",
    )
    assert all(words in page for words in adaptive)


def test_a_recipe_from_scratch_is_fine_tuned_with_the_defaults_of_fine_tuning():
    recipe = find_recipe("digits.resnet20")
    tuned = run_from({"pretrained": True, "lr": 0.3}, recipe)
    assert defaults(tuned) == FINE_TUNING.defaults("sgd") | {"lr": 0.3}
    assert replace(tuned, **defaults(recipe), pretrained=False) == recipe
    paper = find_recipe("imagenet.resnet50")
    tuned = run_from({"pretrained": True}, paper)
    # The paper's method has its own phases, wherever it starts from.
    assert (tuned.lr, tuned.warmup_epochs) == (FINE_TUNING.lr, FINE_TUNING.warmup_epochs)
    assert tuned.settle_from == paper.settle_from != FINE_TUNING.settle_from
    assert run_from({"opt": "adamw"}, Run()).lr == FROM_SCRATCH.adaptive_lr
    assert run_from({"opt": "adamw"}, paper).lr == FROM_SCRATCH.adaptive_lr
    assert run_from({"opt": "adamw"}, replace(paper, lr=0.05)).lr == 0.05


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--pretrained"], {"lr": 0.3, "search_from": FINE_TUNING.search_from}),
        (["--opt", "adamw"], {"lr": 0.3, "search_from": FROM_SCRATCH.search_from}),
        (["--weights", "a.pth", "--lr", "0.2"], {"lr": 0.2, "settle_from": FINE_TUNING.settle_from}),
    ],
)
def test_a_file_wins_over_defaults_and_flags_over_the_file(
    words: list[str], wanted: dict[str, float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "some.yaml").write_text("model: timm:resnet18\ndata: digits\nlr: 0.3\n")
    assert main(["train", "--config", str(tmp_path / "some.yaml"), *words, "--print-config"]) == 0
    text = capsys.readouterr().out
    assert all(f"{name}: {value}\n" in text for name, value in wanted.items())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pretrained": True, "weights": "a"}, "pretrained and weights are both set"),
        ({"weights_sha256": "a"}, "weights_sha256 is set without weights"),
    ],
)
def test_two_starts_are_refused(changes: dict[str, Any], words: str):
    with pytest.raises(SettingError, match=words):
        Settings(**changes)


def test_a_run_from_a_file_starts_there_and_says_so(file: Path, tmp_path: Path):
    view, from_file = Listener(), make_settings(weights=str(file), lr=None)
    mine = fit(make_net(0), make_data(), settings=from_file, out=tmp_path / "run", view=view)
    told = fit(make_net(5), make_data(), settings=make_settings(pretrained=True, lr=None), quiet=True)
    assert same_weights(mine.model, told.model)
    (start,) = [line for line in view.lines if line.startswith("start: ")]
    assert start == (
        f"start: 16 tensors of {file}; defaults for fine-tuning: lr 0.01, warmup_epochs 0.0, "
        "search_from 0.0, shrink_from 0.0, first_cut_from 0.02, settle_from 0.02, zero_within 0.01, "
        "policy filter_norm"
    )
    assert mine.report["start"] == start.removeprefix("start: ")
    assert "lr" not in mine.report["changed"]
    config = read_config(tmp_path / "run")
    assert (config["weights"], len(config["weights_sha256"])) == (str(file), 64)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "defaults for fine-tuning" in page


def test_what_was_set_otherwise_is_said(file: Path):
    view = Listener()
    make = lambda parameters: torch.optim.AdamW(parameters, lr=3e-3)  # noqa: E731
    settings = make_settings(pretrained=True, lr=None, epochs=2, keep_flops=1, zero_within=0.03)
    fit(make_net(), make_data(), settings=settings, optimizer=make, view=view)
    (start,) = [line for line in view.lines if line.startswith("start: ")]
    assert start.startswith("start: the model's own weights, pretrained; defaults for fine-")
    assert start.endswith("; set otherwise: lr 0.003, zero_within 0.03")


@pytest.mark.parametrize("stop", [3, 13, 20])
def test_a_resumed_run_needs_the_file_no_more_and_ends_with_the_same_bits(
    stop: int, file: Path, tmp_path: Path
):
    settings = make_settings(weights=str(file), save_epochs=1)
    whole = fit(make_net(), make_data(), settings=settings, quiet=True)
    with pytest.raises(RunInterruptedError):
        fit(
            make_net(),
            make_data(),
            settings=settings,
            out=tmp_path / "run",
            loss=Counter({stop}, interrupt),
            quiet=True,
        )
    file.unlink()
    again = fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    assert same_weights(whole.model, again.model)


def test_a_run_without_a_checkpoint_begins_again_with_the_same_file_only(file: Path, tmp_path: Path):
    settings = make_settings(weights=str(file), epochs=2)
    with pytest.raises(RunInterruptedError):
        fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", loss=Counter({3}, interrupt))
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        checkpoint.rename(tmp_path / checkpoint.name)
    torch.save(make_net(6).state_dict(), file)
    with pytest.raises(SettingError, match=r"weights_sha256 is '[0-9a-f]+\.\.\.?', but|weights_sha256 is "):
        fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    kept = replace(settings, weights_sha256=read_config(tmp_path / "run")["weights_sha256"])
    with pytest.raises(WeightsError, match="is not the file that the run was started with"):
        fit(make_net(), make_data(), settings=kept, out=tmp_path / "run", resume=True, quiet=True)
    torch.save({"state_dict": make_net(5).state_dict()}, file)
    again = fit(make_net(), make_data(), settings=kept, out=tmp_path / "run", resume=True, quiet=True)
    assert same_weights(again.model, fit(make_net(), make_data(), settings=settings, quiet=True).model)


def test_a_bad_file_leaves_model_and_folder_alone(tmp_path: Path):
    net, before = make_net(), make_net()
    with pytest.raises(WeightsError, match="there is no file"):
        fit(net, make_data(), keep_flops=0.5, weights=tmp_path / "gone.pth", out=tmp_path / "run")
    assert same_weights(net, before)
    assert not (tmp_path / "run").exists()


def test_a_budget_out_of_reach_leaves_the_model_without_the_weights_of_the_file(file: Path):
    net = make_net()
    with pytest.raises(BudgetError):
        fit(net, make_data(), keep_flops=1e-4, epochs=2, weights=file, quiet=True)
    assert same_weights(net, make_net())


def test_fit_takes_the_start_itself_or_in_its_settings(file: Path):
    short = {"epochs": 2, "keep_flops": 1.0, "quiet": True}
    direct = fit(make_net(), make_data(), weights=file, **short)
    inside = fit(make_net(), make_data(), settings=Settings(weights=str(file)), **short)
    assert same_weights(direct.model, inside.model)
    with pytest.raises(SettingError, match=r"weights can't be combined with settings.*Settings\(weights="):
        fit(make_net(), make_data(), settings=Settings(), weights=file, **short)
    with pytest.raises(SettingError, match="weights must be the path of a file, got 3"):
        fit(make_net(), make_data(), weights=3, **short)  # type: ignore[arg-type]


def test_the_command_starts_from_a_file_of_another_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--model", "cifar:resnet20", "--data", "digits", "--keep-flops", "0.5", "--epochs", "1"]
    torch.save(build("cifar:resnet20", wanted=Build(num_classes=100)).model.state_dict(), "donor.pth")
    assert main([*words, "--weights", "donor.pth", "--out", "run", "--batch-size", "256"]) == 0
    said = capsys.readouterr().err
    assert "new head fc: 10 outputs instead of 100; defaults for fine-tuning: lr 0.01" in said
    assert main([*words, "--weights", "config.yaml", "--out", "other"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("other").exists()
