"""Gradients and optimizer state are cut with the parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import trainonce
from support.chains import chain, example, half_plan, narrowed, states_equal, train

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "nesterov": lambda parameters: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
    "adamax": lambda parameters: torch.optim.Adamax(parameters, lr=0.01),
}


every_optimizer = pytest.mark.parametrize("make_optimizer", list(OPTIMIZERS.values()), ids=list(OPTIMIZERS))


def test_gradients_are_cut_too():
    model, plan = chain(), half_plan(chain())
    model(example()).square().sum().backward()
    before = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    trainonce.cut(model, plan)
    for name, parameter in model.named_parameters():
        assert parameter.grad.shape == parameter.shape
        assert torch.equal(parameter.grad, narrowed(before[name], plan, name))


@every_optimizer
def test_optimizer_state_is_cut_too(make_optimizer: Callable):
    model, plan = chain(), half_plan(chain())
    optimizer = make_optimizer(model.parameters())
    train(model, optimizer, 2, seed=1)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    before = {names[id(parameter)]: copy.deepcopy(state) for parameter, state in optimizer.state.items()}
    trainonce.cut(model, plan, optimizer=optimizer)
    after = {names[id(parameter)]: state for parameter, state in optimizer.state.items()}
    assert before.keys() == after.keys()
    for name, state in before.items():
        assert state.keys() == after[name].keys()
        for key, entry in state.items():
            if isinstance(entry, Tensor) and entry.shape == shapes[name]:
                assert torch.equal(after[name][key], narrowed(entry, plan, name))
            else:
                assert after[name][key] == entry


@every_optimizer
def test_cutting_early_or_late_gives_the_same_training(make_optimizer: Callable):
    plan = half_plan(chain())
    models = []
    for cut_early in (True, False):
        model = trainonce.silence(chain(), plan)
        optimizer = make_optimizer(model.parameters())
        train(model, optimizer, 3, seed=1)
        if cut_early:
            trainonce.cut(model, plan, optimizer=optimizer)
        train(model, optimizer, 3, seed=2)
        if not cut_early:
            trainonce.cut(model, plan)
        models.append(model)
    early, late = (dict(model.state_dict()) for model in models)
    start = trainonce.cut(chain(), plan).state_dict()
    assert early.keys() == late.keys()
    for name, tensor in early.items():
        assert torch.allclose(tensor.double(), late[name].double(), rtol=1e-9, atol=1e-12), name
    assert not torch.equal(early["first.0.weight"], start["first.0.weight"])


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda parameters: torch.optim.Adafactor(parameters),
        lambda parameters: torch.optim.ASGD(parameters),
        lambda parameters: torch.optim.RAdam(parameters),
        lambda parameters: torch.optim.Rprop(parameters),
        lambda parameters: torch.optim.Adadelta(parameters),
    ],
    ids=["adafactor", "asgd", "radam", "rprop", "adadelta"],
)
def test_other_optimizers_go_on(make_optimizer: Callable):
    model, plan = chain(), half_plan(chain())
    optimizer = make_optimizer(model.parameters())
    train(model, optimizer, 2, seed=1)
    trainonce.cut(model, plan, optimizer=optimizer)
    train(model, optimizer, 2, seed=2)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_parameter_groups_stay_as_they_are():
    model, plan = chain(), half_plan(chain())
    groups = [
        {"params": model.first.parameters(), "lr": 0.1},
        {"params": model.head.parameters(), "weight_decay": 0.5},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    train(model, optimizer, 1, seed=1)
    before = [
        {key: [id(p) for p in value] if key == "params" else value for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    trainonce.cut(model, plan, optimizer=optimizer)
    after = [
        {key: [id(p) for p in value] if key == "params" else value for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    assert before == after
    train(model, optimizer, 1, seed=2)


def test_optimizer_state_can_be_saved_and_loaded_after_the_cut():
    models = [trainonce.cut(chain(), half_plan(chain())) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    train(models[0], optimizers[0], 2, seed=1)
    models[1].load_state_dict(models[0].state_dict())
    # Loading shares the tensors of a state that is already of the right type.
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, 2, seed=2)
    assert states_equal(*models)
