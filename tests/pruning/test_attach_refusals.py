"""What `attach` refuses, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import trainonce
from support.attaching import num_hooks, quiet_run, sgd_of
from support.digits import attached, batch, convolutional
from trainonce import BudgetError, PrunerError
from trainonce.pruning import policies

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "percent": ({"keep_flops": "50%"}, r"keep_flops must be [^\n]* got '50%'\. Did you mean 0\.5\?"),
    "text": ({"keep_flops": "0.5"}, r"keep_flops must be [^\n]* got '0\.5'\. Did you mean 0\.5\?"),
    "percent_without_a_sign": (
        {"keep_flops": 45},
        r"keep_flops must be [^\n]* got 45\. Did you mean 0\.45\?",
    ),
    "words": ({"keep_flops": "half"}, r"keep_flops must be [^\n]* got 'half'\. 0\.45 keeps 45 %"),
    "parameters": (
        {"keep_flops": None, "keep_params": "30 %"},
        r"keep_params must be [^\n]* Did you mean 0\.3\?",
    ),
    "policy_name": ({"policy": "taylor"}, r"policy must be an object such as [^\n]*, got str"),
    "policy_class": (
        {"policy": policies.Taylor},
        r"policy must be an object such as [^\n]*, got the class Taylor; write Taylor\(\)",
    ),
    "schedule": ({"schedule": 0.1}, r"schedule must be a trainonce.Schedule [^\n]*, got float"),
    "strength": ({"strength": 10}, r"strength must be a trainonce.Strength [^\n]*, got int"),
    "pull": ({"pull": "half-space"}, r"pull must be an object such as [^\n]*, got str"),
    "pull_class": (
        {"pull": trainonce.HalfSpace},
        r"pull must be an object such as [^\n]*, got the class HalfSpace",
    ),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_setting_of_the_wrong_kind_is_refused_in_one_line(name: str):
    settings, words = WRONG[name]
    model = convolutional(8)
    optimizer = sgd_of(model)
    with pytest.raises((PrunerError, BudgetError), match=rf"^{words}[^\n]*$"):
        quiet_run(model, optimizer, **settings)
    assert num_hooks(optimizer) == 0


def test_what_is_no_model_and_what_is_no_optimizer_is_refused_in_one_line():
    model = convolutional(8)
    settings: dict[str, Any] = {"example": batch(0, 2)[0], "keep_flops": 0.5, "total_steps": 1000}
    for thing in ("resnet", None, nn.Linear):
        with pytest.raises(PrunerError, match=r"^model must be an nn.Module, got [^\n]*$"):
            trainonce.attach(thing, sgd_of(model), **settings)  # type: ignore[arg-type]
    for thing in (None, model, list(model.parameters())):
        with pytest.raises(PrunerError, match=r"^optimizer must be a torch.optim.Optimizer, got [^\n]*$"):
            trainonce.attach(model, thing, **settings)  # type: ignore[arg-type]
    with pytest.raises(trainonce.ModelError, match=r"^[^\n]*got NoneType[^\n]*$"):
        trainonce.attach(model, sgd_of(model), **settings | {"example": None})


def test_a_budget_that_a_frozen_backbone_forbids_names_what_is_frozen():
    model = convolutional(8)
    model[:3].requires_grad_(False)
    with pytest.raises(
        BudgetError,
        match=r"^keep_flops=0.45 can't be met[^\n]* 3 of the 3 [^\n]*0\.0\.weight, [^\n]*$",
    ):
        quiet_run(model, sgd_of(model))
    model[1].requires_grad_(True)
    with pytest.raises(
        BudgetError,
        match=(
            r"^keep_flops=0.1 can't be reached[^\n]* 2 of the 3 [^\n]*frozen or not in the optimizer[^\n]* "
            r"Unfreeze them"
        ),
    ):
        quiet_run(model, sgd_of(model), keep_flops=0.1)


def test_a_budget_that_muon_on_the_matrices_forbids_names_what_it_does_not_train():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    muon = torch.optim.Muon([parameter for parameter in model.parameters() if parameter.dim() == 2], lr=0.01)
    with pytest.raises(
        BudgetError,
        match=(
            r"^keep_flops=0.45 can't be met[^\n]* 1 of the 1 [^\n]*\(1\.bias\)\. Unfreeze them, and "
            r"pass them to this optimizer\.$"
        ),
    ):
        quiet_run(model, muon)


def test_a_budget_that_the_model_itself_forbids_says_why():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(
        BudgetError,
        match=r"^keep_flops=0.5 can't be met[^\n]*of the \d+ groups that are kept: \w+[^\n]*$",
    ):
        trainonce.attach(model, optimizer, example=torch.randn(2, 8), keep_flops=0.5, total_steps=1000)


def test_a_run_of_one_step_is_refused_before_it_is_made():
    model = convolutional(8)
    with pytest.raises(
        PrunerError,
        match=r"^a run of one optimizer step [^\n]* Train longer: more epochs, or smaller batches\.$",
    ):
        attached(model, sgd_of(model), 1, policy=policies.FilterNorm())
    whole = attached(model, sgd_of(model), 1, policy=policies.FilterNorm(), keep_flops=1)
    assert whole.is_attached
