"""An optimizer whose state can't be cut is refused by name, by attach or after its first step."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from support.digits import attached, batch, convolutional, train
from trainonce import PlanError, PrunerError, Schedule
from trainonce.pruning import policies
from trainonce.pruning.guards.optimizer_state import refusal


def quiet(model: nn.Module, optimizer: Any, **settings: Any) -> trainonce.Pruner:
    return attached(
        model, optimizer, 60, **{"policy": policies.FilterNorm(), "schedule": Schedule.paper()} | settings
    )


class Own(torch.optim.Optimizer):
    """Plain gradient descent that also stores what `keep` makes of each parameter, from step `since` on."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, {"lr": lr})

    def keep(self, parameter: Tensor) -> dict[str, Any]:
        return {}

    since = 1

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                parameter.sub_(parameter.grad, alpha=group["lr"])
                state = self.state[parameter]
                state["step"] = state.get("step", 0) + 1
                if state["step"] >= self.since:
                    state.update(self.keep(parameter))


class ShampooLike(Own):
    def keep(self, parameter: Tensor) -> dict[str, Any]:
        return {"preconditioners": [torch.eye(size) for size in parameter.shape]}


class FactoredLike(Own):
    """Rows and columns with the other axis dropped, as transformers' Adafactor has them."""

    def keep(self, parameter: Tensor) -> dict[str, Any]:
        return {"exp_avg_sq_row": parameter.detach().square().mean(-1)} if parameter.dim() > 1 else {}


class Flat(Own):
    def keep(self, parameter: Tensor) -> dict[str, Any]:
        return {"flat": parameter.detach().flatten().clone()} if parameter.dim() > 1 else {}


class Global(Own):
    def keep(self, parameter: Tensor) -> dict[str, Any]:
        self.state["all"] = {"history": torch.zeros(3)}  # type: ignore[index]
        return {}


class FlatAside(Own):
    """One vector over all parameters, outside of the state."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        self.momentum = torch.cat(
            [parameter.detach().flatten() for group in self.param_groups for parameter in group["params"]]
        )


class SlowWeights(torch.optim.SGD):
    """A Lookahead that holds no second optimizer."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr=lr)
        self.slow = {
            id(parameter): parameter.detach().clone()
            for group in self.param_groups
            for parameter in group["params"]
        }


class Odd(ShampooLike):
    """Nobody knows how to make a second one."""

    def __init__(self, params: Any, *, secret: object, lr: float = 0.05) -> None:
        assert secret is not None
        super().__init__(params, lr=lr)


class OddAndLate(Odd):
    since = 4


class OddAndVeryLate(Odd):
    since = 20


class Lookahead(torch.optim.Optimizer):
    """As most packages have it: an optimizer that holds another, and slow weights of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer, attribute: str) -> None:
        setattr(self, attribute, optimizer)
        self.param_groups = optimizer.param_groups
        self.state = defaultdict(dict)
        self.defaults = optimizer.defaults


def lbfgs(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(model.parameters())


REFUSED_AT_ONCE: dict[str, tuple[Callable[[nn.Module], torch.optim.Optimizer], str]] = {
    "lbfgs": (lbfgs, "LBFGS keeps its state in flat vectors"),
    "lookahead": (
        lambda model: Lookahead(torch.optim.SGD(model.parameters()), "optimizer"),
        r"Lookahead wraps another optimizer \(SGD\)",
    ),
    "lookahead_base": (
        lambda model: Lookahead(torch.optim.AdamW(model.parameters()), "_base_optimizer"),
        r"Lookahead wraps another optimizer \(AdamW\)",
    ),
    "shampoo": (
        lambda model: ShampooLike(model.parameters()),
        r"ShampooLike keeps 'preconditioners' of shape \(\d+, \d+\)",
    ),
    "factored": (
        lambda model: FactoredLike(model.parameters()),
        "FactoredLike keeps 'exp_avg_sq_row' of shape",
    ),
    "flat": (lambda model: Flat(model.parameters()), r"Flat keeps 'flat' of shape \(\d+,\)"),
    "flat aside": (
        lambda model: FlatAside(model.parameters()),
        r"FlatAside keeps 'momentum' of shape \(\d+,\)",
    ),
    "slow weights": (
        lambda model: SlowWeights(model.parameters()),
        r"SlowWeights keeps 'slow' of shape \(\d+, ",
    ),
    "global": (lambda model: Global(model.parameters()), r"Global keeps 'history' of shape \(3,\)"),
}


@pytest.mark.parametrize("name", list(REFUSED_AT_ONCE))
def test_refused_by_attach(name: str):
    make, words = REFUSED_AT_ONCE[name]
    model = convolutional(8)
    optimizer = make(model)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(PrunerError, match=rf"^{words}[^\n]* Use an optimizer [^\n]*$"):
        quiet(model, optimizer)
    assert not getattr(optimizer, "_optimizer_step_post_hooks", {})
    assert not optimizer.state, "the step was tried on stand-ins"
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_timms_lookahead_is_refused_by_attach():
    timm_optim = pytest.importorskip("timm.optim")
    model = convolutional(8)
    optimizer = timm_optim.Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(PrunerError, match=r"^Lookahead wraps another optimizer \(SGD\)[^\n]*$"):
        quiet(model, optimizer)


@pytest.mark.parametrize(("kind", "at"), [(Odd, 0), (OddAndLate, 3)])
def test_what_attach_can_not_know_is_refused_after_one_of_the_first_steps(kind: type[Odd], at: int):
    model = convolutional(8)
    optimizer = kind(model.parameters(), secret=object())
    pruner = quiet(model, optimizer)
    train(model, optimizer, pruner, steps=range(at), size=8)
    with pytest.raises(PrunerError, match=rf"^{kind.__name__} keeps 'preconditioners'[^\n]*$"):
        train(model, optimizer, pruner, steps=range(at, at + 1), size=8)


def test_state_that_comes_late_costs_the_cut_but_not_the_run():
    model = convolutional(8)
    optimizer = OddAndVeryLate(model.parameters(), secret=object())
    pruner = quiet(model, optimizer)
    with pytest.warns(
        RuntimeWarning,
        match=r"^the model could not be cut at step \d+: OddAndVeryLate keeps [^\n]* Training continues\.$",
    ):
        train(model, optimizer, pruner, steps=range(60), size=8)
    with pytest.raises(PlanError, match=r"optimizer\.state\.clear\(\)"):
        pruner.finish()
    optimizer.state.clear()
    assert pruner.finish() is model
    assert pruner.shrunk


SOUND: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
    "tensor_lr": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(1e-3), foreach=False),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, momentum=0.9, centered=True, lr=1e-3),
    "nadam": lambda parameters: torch.optim.NAdam(parameters),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters),
    "rprop": lambda parameters: torch.optim.Rprop(parameters, lr=1e-3),
    "asgd": lambda parameters: torch.optim.ASGD(parameters),
    "own": Own,
    "own_that_needs_more": lambda parameters: OddWithoutState(parameters, secret=1),
}


class OddWithoutState(Odd):
    def keep(self, parameter: Tensor) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("name", list(SOUND))
def test_optimizers_whose_state_follows_are_taken_and_cut(name: str):
    model = convolutional(8)
    optimizer = SOUND[name](model.parameters())
    noise = torch.get_rng_state(), random.getstate()
    assert refusal(optimizer) is None
    assert torch.equal(torch.get_rng_state(), noise[0])
    assert random.getstate() == noise[1]
    assert optimizer.state_dict()["state"].keys() <= set(range(100))
    pruner = quiet(model, optimizer)
    train(model, optimizer, pruner, steps=range(60), size=8)
    pruner.finish()
    assert pruner.cuts
    F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    optimizer.step()


def test_groups_with_names_and_settings_of_their_own_are_taken():
    model = convolutional(8)
    groups = [
        {"params": list(model[:2].named_parameters()), "lr": 0.1},
        {"params": list(model[2:].named_parameters()), "weight_decay": 0.1},
    ]
    assert refusal(torch.optim.SGD(groups, lr=0.01, momentum=0.9)) is None


@pytest.mark.parametrize(
    "make", [lambda model: ShampooLike(model.parameters()), lbfgs], ids=["shampoo", "lbfgs"]
)
def test_cut_refuses_state_that_does_not_follow_and_leaves_all_as_it_was(
    make: Callable[[nn.Module], torch.optim.Optimizer],
):
    model = convolutional(8)
    optimizer = make(model)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch(0)[0]), batch(0)[1])
        loss.backward()
        return loss

    closure()
    optimizer.step(closure)  # type: ignore[arg-type]
    plan = trainonce.Plan.random(trainonce.inspect(model, batch(0, 2)[0]), keep=0.5)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    with pytest.raises(
        PlanError, match=rf"^{type(optimizer).__name__} keeps [^\n]*optimizer\.state\.clear\(\)\.$"
    ):
        trainonce.cut(model, plan, optimizer=optimizer)
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == shapes
