"""A model that is restored before its optimizer exists goes on with the same bits as in the usual order."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import trainonce
from graphs.attention import FusedBySplit
from support.digits import attached, convolutional, train
from support.started import OPTIMIZERS, SCHEDULE, TOTAL_STEPS, begun
from trainonce import PrunerError
from trainonce.pruning import policies

STOPS = [30, 50, 70]
"""Before the first cut, between the two, after both."""

TWO_CUTS = {"schedule": replace(SCHEDULE, first_cut_from=40)}
WAYS: dict[str, dict[str, Any]] = {
    "default": TWO_CUTS,
    "taylor": TWO_CUTS | {"policy": policies.Taylor},
    "static": TWO_CUTS | {"policy": policies.StaticSalience, "pull": trainonce.HalfSpace(0.1)},
}


def as_saved(*things: Any) -> list[Any]:
    return copy.deepcopy([thing.state_dict() for thing in things])


def settings_of(way: str) -> dict[str, Any]:
    settings = {"round_to": 1} | WAYS[way]
    return settings | ({"policy": settings["policy"]()} if "policy" in settings else {})


@pytest.mark.parametrize("way", list(WAYS))
def test_restored_first_is_the_same_run(way: str):
    make_optimizer = OPTIMIZERS["adamw"]
    model, optimizer, pruner = begun(make_optimizer, WAYS[way])
    saved: dict[int, list[Any]] = {}

    def after(step: int, _cut: bool) -> None:
        if step + 1 in STOPS:
            saved[step + 1] = as_saved(pruner, model, optimizer)

    train(model, optimizer, pruner, steps=range(TOTAL_STEPS), size=8, after=after)
    wanted = pruner.finish().state_dict()
    assert [len(saved[stop][0]["cuts"]) for stop in STOPS] == [0, 1, 2]
    for stop, (pruner_state, model_state, optimizer_state) in saved.items():
        again = convolutional(6)
        assert trainonce.restore(again, pruner_state) is again
        again.load_state_dict(model_state)
        other = make_optimizer(again.parameters())
        other.load_state_dict(optimizer_state)
        resumed = attached(again, other, TOTAL_STEPS, **settings_of(way))
        weights = as_saved(again)
        resumed.load_state_dict(pruner_state)
        assert all(torch.equal(part, weights[0][name]) for name, part in again.state_dict().items())
        train(again, other, resumed, steps=range(stop, TOTAL_STEPS), size=8)
        found = resumed.finish().state_dict()
        assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == [], stop


def test_sizes_that_the_models_own_code_reads_come_back():
    """Heads and their sizes are attributes of the module, verified by running it."""
    model, example = FusedBySplit(16, 4, 4, 4), torch.randn(2, 5, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(model: nn.Module, optimizer: Any) -> trainonce.Pruner:
        return trainonce.attach(
            model,
            optimizer,
            example=example,
            keep_flops=0.5,
            total_steps=40,
            round_to=1,
            policy=policies.FilterNorm(),
            schedule=trainonce.Schedule(search_from=2, shrink_from=4, settle_from=10, update_every=1),
        )

    pruner = run(model, optimizer)
    for _ in range(40):
        optimizer.zero_grad()
        model(example).square().mean().backward()
        optimizer.step()
        pruner.step()
    state = pruner.state_dict()
    assert any(plan.attributes for plan in pruner.cuts)
    again = FusedBySplit(16, 4, 4, 4)
    trainonce.restore(again, state)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(example), model(example))
    resumed = run(again, torch.optim.SGD(again.parameters(), lr=0.1))
    resumed.load_state_dict(state)
    assert resumed.finish() is again
    assert torch.equal(again(example), model(example))


@pytest.fixture(scope="module")
def stopped() -> list[Any]:
    model, optimizer, pruner = begun(OPTIMIZERS["sgd"], {"policy": policies.FilterNorm})
    train(model, optimizer, pruner, steps=range(70), size=8)
    assert pruner.shrunk
    return as_saved(pruner, model)


def refused(model: Any, state: Any, words: str, **settings: Any) -> None:
    before = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else {}
    with pytest.raises(PrunerError, match=rf"^{words}[^\n]*$"):
        trainonce.restore(model, state, **settings)
    assert all(torch.equal(part, before[name]) for name, part in getattr(model, "state_dict", dict)().items())


def test_what_does_not_fit_is_refused(stopped: list[Any]):
    state = stopped[0]
    refused("resnet", state, "model must be an nn.Module, got str")
    refused(convolutional(7), state, "this state is of another model, or the model has been cut already")
    refused(nn.Linear(2, 2), state, "this state is of another model")
    refused(convolutional(6), {"weights": 1}, "this is not a pruner state of version 2")
    refused(convolutional(6), None, "this is not a pruner state")
    refused(convolutional(6), state | {"cuts": 3}, "the pruner's state is damaged: its cuts are not a list")
    old = {key: value for key, value in state.items() if key != "plans"}
    refused(convolutional(6), old, "this state was saved without its plans, by an older trainonce. Attach")
    refused(convolutional(6), state, "followers must be a list", followers="ema")
    refused(convolutional(6), state, "the follower Linear holds no copy", followers=[nn.Linear(2, 2)])


@pytest.mark.parametrize(
    "part",
    [torch.zeros(3), torch.zeros(3, dtype=torch.uint8), torch.full((3,), 200, dtype=torch.uint8), "{}"],
)
def test_a_damaged_plan_is_refused(stopped: list[Any], part: Any):
    state = stopped[0] | {"plans": [part for _ in stopped[0]["cuts"]]}
    refused(convolutional(6), state, "the pruner's state is damaged: ")


def test_the_wrong_order_is_refused(stopped: list[Any]):
    state, weights = stopped
    model = convolutional(6)
    trainonce.restore(model, state)
    refused(model, state, "this model has been restored already")
    model.load_state_dict(weights)
    pruner = attached(
        model,
        OPTIMIZERS["sgd"](model.parameters()),
        TOTAL_STEPS,
        policy=policies.FilterNorm(),
        schedule=SCHEDULE,
        round_to=1,
    )
    for method in (pruner.step, pruner.finish):
        with pytest.raises(PrunerError, match=rf"^{method.__name__}\(\) was called on a restored model"):
            method()
    refused(model, state, "this model has a pruner already")
    fewer = state | {"cuts": state["cuts"][:1], "plans": state["plans"][:1]}
    with pytest.raises(PrunerError, match=r"^this model was restored from another state"):
        pruner.load_state_dict(fewer)
    pruner.load_state_dict(state)
    with pytest.raises(PrunerError, match="this model has been cut already"):
        pruner.load_state_dict(state)


def test_a_state_from_before_the_first_cut_changes_nothing():
    model, optimizer, pruner = begun(OPTIMIZERS["sgd"], {"policy": policies.FilterNorm})
    train(model, optimizer, pruner, steps=range(20), size=8)
    assert not pruner.cuts
    again = convolutional(6)
    trainonce.restore(again, pruner.state_dict())
    assert all(
        torch.equal(*parts) for parts in zip(again.parameters(), convolutional(6).parameters(), strict=True)
    )


@pytest.mark.parametrize("stop", STOPS)
def test_a_run_that_began_small_is_restored_from_the_dense_model_too(stop: int):
    make_optimizer, settings = OPTIMIZERS["sgd"], {"policy": policies.FilterNorm}
    model, optimizer, pruner = begun(make_optimizer, settings)
    train(model, optimizer, pruner, steps=range(TOTAL_STEPS), size=8)
    first = pruner.finish()
    began = copy.deepcopy(first)
    optimizer = make_optimizer(first.parameters())
    further = {"schedule": SCHEDULE, "round_to": 1, "keep_flops": 0.7}
    pruner = attached(first, optimizer, TOTAL_STEPS, policy=policies.FilterNorm(), **further)
    saved: list[Any] = []

    def after(step: int, _cut: bool) -> None:
        if step + 1 == stop:
            saved.extend(as_saved(pruner, first, optimizer))

    train(first, optimizer, pruner, steps=range(TOTAL_STEPS), size=8, after=after)
    wanted = pruner.finish().state_dict()
    for again in (convolutional(6), began):
        # The optimizer goes on in the tensors that it is given.
        pruner_state, model_state, optimizer_state = copy.deepcopy(saved)
        trainonce.restore(again, pruner_state)
        again.load_state_dict(model_state)
        other = make_optimizer(again.parameters())
        other.load_state_dict(optimizer_state)
        resumed = attached(again, other, TOTAL_STEPS, policy=policies.FilterNorm(), **further)
        resumed.load_state_dict(pruner_state)
        train(again, other, resumed, steps=range(stop, TOTAL_STEPS), size=8)
        found = resumed.finish().state_dict()
        assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []
    with pytest.raises(PrunerError, match=r"^[^\n]*its earlier cuts are not a list[^\n]*$"):
        trainonce.restore(convolutional(6), pruner_state | {"earlier": 7})
