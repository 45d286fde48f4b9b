"""What a state should look like.

Every optimizer's own state is accepted, and what differs from it in kind, key or shape is not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from support.digits import same
from trainonce.storage.likeness import MismatchError, check_alike, check_optimizer, check_weights

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "asgd": torch.optim.ASGD,
    "rprop": torch.optim.Rprop,
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, momentum=0.9, centered=True),
    "adafactor": torch.optim.Adafactor,
    "two groups": lambda parameters: torch.optim.AdamW([{"params": [item]} for item in parameters], lr=1),
}


def build() -> nn.Module:
    model = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3), nn.Linear(3, 3))
    model[3].requires_grad_(False)
    return model


def shapes_of(model: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in model.parameters()]


def trained(make: Callable[[Any], torch.optim.Optimizer], num_steps: int) -> dict[str, Any]:
    model = build()
    optimizer = make(model.parameters())
    for _ in range(num_steps):
        model(torch.randn(4, 300)).square().mean().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
    return optimizer.state_dict()


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_the_state_of_every_optimizer_is_accepted_and_the_optimizer_unchanged(name: str):
    model = build()
    optimizer = OPTIMIZERS[name](model.parameters())
    before = copy.deepcopy(optimizer.state_dict())
    for num_steps in (0, 1, 3):
        check_optimizer(trained(OPTIMIZERS[name], num_steps), optimizer, shapes_of(model), "optimizer")
    assert same(optimizer.state_dict(), before)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in ("sgd", "adagrad")])
def test_a_state_with_another_shape_or_without_a_key_is_refused(name: str):
    model = build()
    optimizer, state = OPTIMIZERS[name](model.parameters()), trained(OPTIMIZERS[name], 2)
    for key in list(state["state"][0]):
        without = {
            number: {k: v for k, v in item.items() if k != key or number}
            for number, item in state["state"].items()
        }
        longer = {number: dict(item) for number, item in state["state"].items()}
        longer[0][key] = torch.zeros(7)
        for forged in (without, longer):
            with pytest.raises(MismatchError, match="optimizer/state/0"):
                check_optimizer(state | {"state": forged}, optimizer, shapes_of(model), "optimizer")


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("state"),
        lambda state: state.update(more=1),
        lambda state: state["param_groups"].append({}),
        lambda state: state["param_groups"][0].pop("lr"),
        lambda state: state["param_groups"][0].update(lr="fast"),
        lambda state: state["param_groups"][0].update(betas=(1,)),
        lambda state: state["param_groups"][0].update(fused=True),
        lambda state: state["param_groups"][0].update(params=[0, 1, 1, 3]),
        lambda state: state["state"].update({99: {}}),
        lambda state: state["state"].update({"0": {}}),
        lambda state: state.update(state=[]),
    ],
)
def test_another_optimizer_is_told_apart(change: Callable[[dict[str, Any]], object]):
    model = build()
    optimizer, state = torch.optim.AdamW(model.parameters()), trained(torch.optim.AdamW, 1)
    change(state)
    with pytest.raises(MismatchError, match=r"^optimizer"):
        check_optimizer(state, optimizer, shapes_of(model), "optimizer")


def test_an_optimizer_of_the_user_may_keep_what_it_likes():
    class Own(torch.optim.SGD):
        pass

    optimizer = Own(build().parameters(), lr=0.1)
    state = optimizer.state_dict() | {"state": {0: {"kronecker": torch.zeros(5, 5)}}}
    check_optimizer(state, optimizer, shapes_of(build()), "optimizer")
    known = torch.optim.Adam(build().parameters(), lr=0.1)
    with pytest.raises(MismatchError, match=r"^optimizer/state/0"):
        check_optimizer(
            known.state_dict() | {"state": state["state"]}, known, shapes_of(build()), "optimizer"
        )


def test_modules_that_read_their_state_in_a_way_of_their_own_are_believed():
    class Own(nn.Linear):
        def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
            return

    model = nn.Sequential(Own(2, 2), nn.Linear(2, 2))
    state = dict(model.state_dict())
    check_weights(state | {"0.weight": torch.zeros(9)}, model, {}, "model")
    with pytest.raises(MismatchError, match=r"model/1\.weight is a tensor of float32 with shape \(9,\)"):
        check_weights(state | {"1.weight": torch.zeros(9)}, model, {}, "model")
    with pytest.raises(MismatchError, match=r"no entry 1\.weight"):
        check_weights(
            {name: tensor for name, tensor in state.items() if name != "1.weight"}, model, {}, "model"
        )


@pytest.mark.parametrize(
    ("found", "template"),
    [
        (1, "a"),
        ("a", 1),
        (True, 1),
        (1, True),
        ([], ()),
        ((1, 2), (1,)),
        ({}, {"a": 1}),
        ({"b": 1}, {"a": 1}),
        (None, 1),
        (3, {}),
        (3, []),
    ],
)
def test_another_kind_is_refused(found: Any, template: Any):
    with pytest.raises(MismatchError) as caught:
        check_alike(found, template, "x")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("found", "template"),
    [
        (1, 2.0),
        (float("nan"), 1),
        ("b", "a"),
        ({"a": 1}, {}),
        ([1], []),
        (object(), None),
        ({1: (2,)}, {1: (3,)}),
    ],
)
def test_what_has_yet_to_come_may_be_anything(found: Any, template: Any):
    check_alike(found, template, "x")
    with pytest.raises(MismatchError, match=r"^x"):
        check_alike(found, torch.zeros(2), "x")
