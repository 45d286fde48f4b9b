"""Bad arguments of `fit` are refused in one line that says what to pass, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from support.runs import Net, make_data, make_net, make_settings
from trainonce.errors import SettingError
from trainonce.pruning import policies
from trainonce.training import fit
from trainonce.training.results import outcome

TRAIN, VALIDATION = make_data()
LOADER = DataLoader(TensorDataset(*TRAIN), batch_size=16)


def frozen() -> nn.Module:
    return make_net().requires_grad_(False)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "percent as text": ({"keep_flops": "50%"}, r"keep_flops must be .*got '50%'\. Did you mean 0\.5\?"),
    "percent as number": ({"keep_flops": 45}, r"keep_flops must be .*got 45\. Did you mean 0\.45\?"),
    "number as text": ({"epochs": "5"}, r"epochs must be .*got '5'\. Did you mean 5\?"),
    "two budgets": ({"keep_flops": 0.5, "keep_params": 0.5}, "both set"),
    "no epochs": ({"epochs": 0}, "epochs must be an integer from 1 to 1,000,000"),
    "half an epoch": ({"epochs": 1.5}, "epochs must be an integer"),
    "one loader": ({"data": LOADER}, r"data must be a pair \(training, validation\), got DataLoader"),
    "one data set": ({"data": TensorDataset(*TRAIN)}, "data must be a pair"),
    "one set of tensors": ({"data": TRAIN}, r"data is two tensors\. Pass two pairs"),
    "three parts": ({"data": (TRAIN, VALIDATION, VALIDATION)}, "data must be a pair"),
    "a class": ({"model": Net}, r"model is the class Net\. Pass an instance: Net\(\.\.\.\)"),
    "a function": ({"model": torch.relu}, "model must be an nn.Module"),
    "no parameters": ({"model": nn.ReLU()}, "has no parameters"),
    "all frozen": ({"model": frozen()}, "are frozen"),
    "a loss by name": ({"loss": "mse"}, r"loss must be a function .*got 'mse'"),
    "a loss class": ({"loss": nn.MSELoss}, r"loss is the class MSELoss\. Pass an instance, MSELoss\(\)"),
    "a loss per sample": (
        {"loss": nn.CrossEntropyLoss(reduction="none")},
        r"loss must return a scalar, .*got shape \(16,\)",
    ),
    "a loss as a number": ({"loss": lambda output, targets: 3.0}, "loss must return a scalar, .*got float"),
    "an optimizer by name": ({"optimizer": "adamw"}, r"optimizer is a string\. Pass Settings\(opt='adamw'\)"),
    "an optimizer as number": (
        {"optimizer": 3},
        r"optimizer must be an optimizer, or a function [^\n]*, got int\. For example: optimizer=lambda p:",
    ),
    "no optimizer back": ({"optimizer": lambda parameters: None}, "must return a torch.optim.Optimizer"),
    "settings as dict": (
        {"settings": {"lr": 0.1}},
        r"settings must be trainonce\.Settings, got dict\. Write Settings\(\*\*settings\)",
    ),
    "out as number": ({"out": 3}, "out must be the path of a folder, got 3"),
    "policy as text": ({"policy": "taylor"}, r"policy is a string\. Pass Settings\(policy='taylor'\)"),
    "policy as class": (
        {"policy": policies.Taylor},
        r"policy is the class Taylor\. Pass an instance: Taylor\(\)",
    ),
    "policy as number": ({"policy": 3}, "policy must be a trainonce.policies.Policy"),
    "policy of no name": (
        {"settings": make_settings(policy="tailor")},
        r"unknown policy 'tailor'\. Did you mean taylor\?",
    ),
    "view as text": ({"view": "none"}, "view must have the methods show, say and close"),
    "loud and quiet": ({"view": outcome, "quiet": True}, "view must have|can't be combined"),
}


@pytest.mark.parametrize("kind", list(WRONG))
def test_what_can_not_work_is_refused_in_one_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    changes, words = WRONG[kind]
    settings = (
        make_settings(keep_flops=None) if {"keep_flops", "keep_params"} & changes.keys() else make_settings()
    )
    arguments = {
        "model": make_net(),
        "data": (TRAIN, VALIDATION),
        "settings": settings,
        "out": tmp_path / "run",
    }
    arguments |= changes
    with pytest.raises(SettingError, match=words) as caught:
        fit(arguments.pop("model"), arguments.pop("data"), **arguments)
    assert "\n" not in str(caught.value)
    assert not [path.name for path in (tmp_path / "run").glob("*") if path.name != ".lock"]
