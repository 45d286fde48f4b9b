"""The paper's method is one word in `fit`, in the settings and in the command; what conflicts is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.runs import Listener, make_data, make_net, make_settings, same_weights, stop_run
from trainonce import HalfSpace, Method, Proximal, Schedule, Settings, Strength
from trainonce.cli import main
from trainonce.errors import SettingError
from trainonce.pruning import policies
from trainonce.recipes.catalogue import find_recipe
from trainonce.recipes.paper import ROWS
from trainonce.recipes.run import Run, run_from
from trainonce.runs.config_file import read_yaml
from trainonce.runs.folder import read_config
from trainonce.training import fit
from trainonce.training.methods import PARTS
from trainonce.training.results import outcome
from trainonce.training.settings import as_plain

OTHERS: dict[str, Any] = {
    "search_from": 0.07,
    "shrink_from": 0.3,
    "first_cut_from": 0.4,
    "settle_from": 0.6,
    "zero_within": 0.1,
    "policy": "taylor",
    "controller_share": 0.2,
}
"""A value for each part that the paper has not."""

IN_PARTS = Method(
    name="in parts",
    policy=lambda: policies.Controller(learning_rate=1e-3),
    schedule=Schedule(
        search_from=0.10, shrink_from=0.20, first_cut_from=0.50, settle_from=0.50, update_every=20
    ),
    strength=Strength.constant(10.0),
    pull=Proximal(),
    controller_share=0.05,
)


@pytest.fixture(autouse=True)
def no_long_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outcome, "LATENCY_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)


def fitted(**arguments: Any) -> Any:
    settings = {"settings": make_settings(epochs=30)} | arguments
    return fit(make_net(), make_data(), quiet=True, **settings)


def test_the_word_is_the_papers_constants():
    """In `fit`, in its settings and as an object; it learns every 20 steps, from 5 % of the data."""
    wanted = fitted(method=IN_PARTS)
    for arguments in (
        {"method": "paper"},
        {"method": Method.paper()},
        {"settings": make_settings(epochs=30, method="paper")},
    ):
        found = fitted(**arguments)
        assert same_weights(found.model, wanted.model), arguments
        assert found.report["config"]["method"] == "paper"
    assert wanted.report["controller_samples"] == 3
    assert wanted.report["schedule"]["phases"] | {"small": None} == {
        "search": 12,
        "shrink": 24,
        "settle": 60,
        "small": None,
    }
    assert len(wanted.report["schedule"]["cuts"]) == 1
    losses = {record["controller_loss"] for record in wanted.history if record["controller_loss"] is not None}
    assert len(losses) == 3
    assert not same_weights(fitted().model, wanted.model)


def test_a_method_of_ones_own_reaches_the_run():
    mine = replace(Method.paper(), name="mine", pull=HalfSpace(), controller_share=0.5)
    result = fitted(method=mine)
    assert result.report["controller_samples"] == 32
    assert result.report["config"]["method"] == "mine"
    assert not set(PARTS) & result.report["config"].keys(), "settings that had no effect are not recorded"
    assert not same_weights(result.model, fitted(method="paper").model)


def test_the_default_by_name_is_the_default():
    assert same_weights(fitted(method="default").model, fitted().model)


def test_the_first_lines_and_the_page_say_it(tmp_path: Path):
    for method, said in (("paper", True), ("default", False)):
        view = Listener()
        fit(make_net(), make_data(), settings=make_settings(method=method), out=tmp_path / method, view=view)
        (budget,) = [line for line in view.lines if line.startswith("budget: ")]
        assert budget.endswith(", by the method paper") == said
        page = (tmp_path / method / "report.html").read_text()
        assert ("of the FLOPs by the method paper" in page) == said


@pytest.mark.parametrize("name", PARTS)
def test_a_part_beside_the_paper_is_refused(name: str):
    words = rf"^the method paper has its own {name} \([^\n]*Leave one of them out[^\n]*$"
    with pytest.raises(SettingError, match=words):
        Settings(method="paper", **{name: OTHERS[name]})
    with pytest.raises(SettingError, match=words):
        fitted(settings=make_settings(**{name: OTHERS[name]}), method="paper")
    with pytest.raises(SettingError, match=rf"^the method in parts has its own {name}, [^\n]*$"):
        fitted(settings=make_settings(**{name: OTHERS[name]}), method=IN_PARTS)
    assert getattr(Settings(method="default", **{name: OTHERS[name]}), name) == OTHERS[name]


@pytest.mark.parametrize("method", ["paper", Method.paper(), "default"], ids=["word", "object", "default"])
def test_a_policy_beside_a_method_is_refused(method: Any):
    with pytest.raises(SettingError, match=r"^the method \w+ has its own policy, [^\n]*Leave one[^\n]*$"):
        fitted(method=method, policy=policies.Taylor())
    with pytest.raises(SettingError, match=r"^the method paper has its own policy, [^\n]*Leave one[^\n]*$"):
        fitted(settings=make_settings(method="paper"), policy=policies.Taylor())


@pytest.mark.parametrize("method", ["papr", 3, Method, nn.ReLU()])
def test_what_is_no_method_is_refused(method: Any):
    with pytest.raises(SettingError, match=r"^(there is no method|method must be one of) [^\n]*$"):
        fitted(method=method)


def test_a_run_by_the_paper_is_resumed_bit_for_bit(tmp_path: Path):
    settings = make_settings(method="paper")
    whole = fit(make_net(), make_data(), settings=settings, quiet=True)
    stop_run(tmp_path / "run", at=9, settings=settings)
    assert read_config(tmp_path / "run")["method"] == "paper"
    with pytest.raises(SettingError, match=r"method is 'default', .* started with 'paper'"):
        fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True, quiet=True)
    result = fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    assert same_weights(result.model, whole.model)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_the_recipes_of_the_papers_rows_name_its_method(row: Any):
    run, method = find_recipe(row.recipe), Method.paper()
    assert run.method == "paper"
    assert (run.search_from, run.shrink_from, run.first_cut_from, run.settle_from) == (0.1, 0.2, 0.5, 0.5)
    assert run.schedule == replace(method.schedule, update_every=None)
    assert (run.policy, run.zero_within) == ("paper_controller", method.strength.zero_within)


def test_another_method_brings_its_own_defaults():
    paper, plain = find_recipe("cifar10.resnet56"), Run(keep_flops=0.5)
    back = run_from({"method": "default"}, paper)
    assert {name: getattr(back, name) for name in PARTS} == {name: getattr(plain, name) for name in PARTS}
    there = run_from({"method": "paper"}, plain)
    assert {name: getattr(there, name) for name in PARTS} == {name: getattr(paper, name) for name in PARTS}
    assert run_from({"method": "default", "settle_from": 0.6}, paper).settle_from == 0.6
    with pytest.raises(SettingError, match=r"^the method paper has its own settle_from"):
        run_from({"settle_from": 0.6}, paper)
    with pytest.raises(SettingError, match=r"^the method paper has its own settle_from"):
        run_from({"method": "paper"}, Run(keep_flops=0.5, settle_from=0.6))
    assert run_from(as_plain(paper), Run()) == paper, "a file of the run's settings gives the same run"


def test_the_command_takes_a_method(capsys: pytest.CaptureFixture[str]):
    words = ["train", "digits.resnet20", "--epochs", "1", "--warmup-epochs", "0", "--quiet"]
    assert main([*words, "--method", "paper", "--out", "run"]) == 0
    assert read_config(Path("run"))["method"] == "paper"
    capsys.readouterr()
    for flags in (["--policy", "taylor"], ["--settle-from", "0.6"]):
        assert main([*words, "--method", "paper", *flags, "--out", "other"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "the method paper has its own" in line
    assert main([*words, "--method", "papers"]) == 2
    assert "--method: must be one of default, paper, got 'papers'" in capsys.readouterr().err
    assert main(["train", "cifar10.resnet56", "--method", "default", "--print-config"]) == 0
    Path("printed.yaml").write_text(capsys.readouterr().out)
    printed = read_yaml(Path("printed.yaml"))
    assert (printed["method"], printed["settle_from"], printed["policy"]) == ("default", 0.45, "controller")


def test_the_method_says_nothing_about_the_dense_model():
    dense = {"keep_flops": 1.0}
    one, other = (
        fit(make_net(), make_data(), settings=make_settings(method=name, **dense), quiet=True).model
        for name in ("paper", "default")
    )
    assert same_weights(one, other)
    assert torch.equal(one.state_dict()["head.weight"], other.state_dict()["head.weight"])
