"""Averages that are no modules but lists or dicts of tensors are cut as modules are, if they are named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from support.averages import narrowed
from support.digits import attached, convolutional, train
from trainonce import PrunerError, Schedule
from trainonce.pruning import policies

SCHEDULE = Schedule(search_from=5, shrink_from=10, first_cut_from=20, settle_from=35, update_every=1)
STEPS, WIDTH = 60, 9
"""The width is of the models in this file only: what another test has left alive is no copy of them."""


class Listed:
    """As torch-ema and diffusers keep it; frozen parameters are left out."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow_params = [part.detach().clone() for part in model.parameters() if part.requires_grad]
        self.collected_params = None
        self.model = model

    def update(self) -> None:
        trained = [part for part in self.model.parameters() if part.requires_grad]
        for mine, theirs in zip(self.shadow_params, trained, strict=True):
            mine.lerp_(theirs.detach(), 0.1)

    def as_state(self) -> dict[str, Tensor]:
        names = [name for name, part in self.model.named_parameters() if part.requires_grad]
        return dict(zip(names, self.shadow_params, strict=True))


class Named(Listed):
    """As tutorials have it: new tensors in each step."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.shadow = {
            f"module.{name}": part.detach().clone()
            for name, part in model.named_parameters()
            if part.requires_grad
        }

    def update(self) -> None:
        for name, theirs in self.model.named_parameters():
            if theirs.requires_grad:
                mine = self.shadow[f"module.{name}"]
                self.shadow[f"module.{name}"] = (0.1 * theirs.detach() + 0.9 * mine).clone()

    def as_state(self) -> dict[str, Tensor]:
        return {name.removeprefix("module."): part for name, part in self.shadow.items()}


class WithBuffers(Listed):
    """A whole state dict, kept twice."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.state = {name: part.clone() for name, part in model.state_dict().items()}
        self.again = list(self.state.values())

    def update(self) -> None:
        for name, theirs in self.model.state_dict().items():
            if theirs.is_floating_point():
                self.state[name].lerp_(theirs, 0.1)

    def as_state(self) -> dict[str, Tensor]:
        return self.state


WAYS: dict[str, tuple[Callable[[nn.Module], Any], Callable[[Any], Any]]] = {
    "an object with a list": (Listed, lambda average: average),
    "the list": (Listed, lambda average: average.shadow_params),
    "an object with a dict": (Named, lambda average: average),
    "the dict": (Named, lambda average: average.shadow),
    "a state dict": (WithBuffers, lambda average: average),
}


def begun(*, frozen: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = convolutional(WIDTH)
    if frozen:
        model[0].requires_grad_(False)
    trained = [part for part in model.parameters() if part.requires_grad]
    return model, torch.optim.SGD(trained, lr=0.05, momentum=0.9)


def with_pruner(model: nn.Module, optimizer: Any, **settings: Any) -> trainonce.Pruner:
    return attached(
        model, optimizer, STEPS, **{"policy": policies.FilterNorm(), "schedule": SCHEDULE} | settings
    )


@pytest.mark.parametrize("frozen", [False, True], ids=["all trained", "some frozen"])
@pytest.mark.parametrize("way", list(WAYS))
def test_the_average_of_a_cut_model_is_the_cut_of_the_average(way: str, frozen: bool):
    model, optimizer = begun(frozen=frozen)
    make, name = WAYS[way]
    average = make(model)
    pruner = with_pruner(model, optimizer, followers=[name(average)])
    num_cuts = 0
    for step in range(STEPS):
        saved: dict[str, Tensor] = {}

        def before() -> None:
            saved.update(model.state_dict() | copy.deepcopy(average.as_state()))  # noqa: B023

        train(model, optimizer, pruner, steps=range(step, step + 1), size=8, before=before)
        if len(pruner.cuts) > num_cuts:
            num_cuts += 1
            expected, now = narrowed(saved, pruner.cuts[-1]), average.as_state()
            assert all(torch.equal(now[name], expected[name]) for name in now)
        average.update()
    small = pruner.finish()
    assert num_cuts == 2
    assert small[1][0].out_channels < 2 * WIDTH
    small.load_state_dict(average.as_state(), strict=False)


def test_followers_are_whole_again_if_the_model_cant_be_cut(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise trainonce.PlanError("not today")

    model, optimizer = begun()
    average = Listed(model)
    pruner = with_pruner(model, optimizer, followers=[average])
    monkeypatch.setattr("trainonce.pruning.cuts.shrink", refuse)
    with pytest.warns(RuntimeWarning, match="could not be cut at step [0-9]+: not today"):
        train(model, optimizer, pruner, steps=range(STEPS), size=8, after=lambda *_: average.update())
    assert [part.shape for part in average.shadow_params] == [part.shape for part in model.parameters()]
    assert model[1][0].out_channels == 2 * WIDTH


def test_a_resumed_run_cuts_the_new_average():
    model, optimizer = begun()
    average = Listed(model)
    pruner = with_pruner(model, optimizer, followers=[average])
    train(model, optimizer, pruner, steps=range(50), size=8, after=lambda *_: average.update())
    again, _ = begun()
    second = Listed(again)
    trainonce.restore(again, pruner.state_dict(), followers=[second])
    assert [part.shape for part in second.shadow_params] == [part.shape for part in model.parameters()]


def test_tied_weights_are_cut_by_all_their_names():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.third, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
            self.third.weight = self.second.weight

        def forward(self, points: Tensor) -> Tensor:
            return self.last(self.third(self.second(self.first(points).relu()).relu()).relu())

    model = Tied()
    shadow = {name: part.clone() for name, part in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=torch.zeros(2, 4),
        keep_params=0.5,
        total_steps=STEPS,
        policy=policies.FilterNorm(),
        schedule=SCHEDULE,
        round_to=1,
        followers=[shadow],
    )
    for step in range(STEPS):
        model(torch.randn(8, 4, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    small = pruner.finish().state_dict()
    assert small["third.weight"].shape[0] < WIDTH
    assert {name: part.shape for name, part in shadow.items()} == {
        name: part.shape for name, part in small.items()
    }


def test_what_is_no_average_of_this_model_is_refused():
    model, optimizer = begun()
    own, parts = model.state_dict(), [part.detach().clone() for part in model.parameters()]
    for holder in (
        *([], {}, [*parts, parts[0]], parts[::-1]),
        *(own, list(model.parameters()), own | {"more": parts[0]}),
        {name: part.detach().clone() for name, part in list(model.named_parameters())[1:]},
    ):
        with pytest.raises(
            PrunerError, match=r"^the follower (OrderedDict|dict|list) holds no copy of this model[^\n]*$"
        ):
            with_pruner(model, optimizer, followers=[holder])
