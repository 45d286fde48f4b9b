"""A run that is stopped, and resumed on a new dense model, ends with the same bits as one that was not."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from support.digits import attached, convolutional, same, train
from support.started import OPTIMIZERS, SCHEDULE, TOTAL_STEPS, begun
from trainonce import PrunerError
from trainonce.pruning import policies
from trainonce.pruning.pulling import projection

STOPS = [0, 4, 10, 17, 25, 40, 41, 50, 63, 64, 65, 66, 80, 109]
"""Before the search, in it, at its border, after the decision, after the shrink, before the end."""

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "controller": {"policy": policies.Controller},
    "free_logits": {"policy": lambda: policies.Controller(policies.FreeLogits)},
    "filter_norm": {"policy": policies.FilterNorm, "pull": projection.AdamMetric()},
    "taylor": {"policy": policies.Taylor},
    "oto": {"policy": policies.PenalizeAll, "pull": trainonce.HalfSpace()},
    "static": {"policy": policies.StaticSalience, "pull": trainonce.HalfSpace(0.1)},
    "prior_taylor": {"policy": lambda: policies.AnchoredController(prior=policies.Taylor())},
    "static_taylor": {"policy": lambda: policies.StaticSalience(policies.Taylor())},
    "gradual": {
        "policy": lambda: policies.Gradual(policies.Taylor(), num_periods=5),
        "pull": trainonce.HalfSpace(),
    },
    "random": {"policy": policies.RandomChoice},
    "soft_filter": {"policy": lambda: policies.SoftFilter(num_rounds=7)},
    "soft_filter_twice": {
        "policy": lambda: policies.SoftFilter(num_rounds=7),
        "schedule": replace(SCHEDULE, first_cut_from=40),
    },
    "feature_rank": {"policy": policies.FeatureRank, "schedule": replace(SCHEDULE, update_every=5)},
    "discrete_gates": {"policy": policies.DiscreteGates},
    "no_shrink": {"shrink": False},
    "two_cuts": {"schedule": replace(SCHEDULE, first_cut_from=40)},
    "two_cuts_of_norms": {"schedule": replace(SCHEDULE, first_cut_from=40), "policy": policies.FilterNorm},
    "two_cuts_no_shrink": {"schedule": replace(SCHEDULE, first_cut_from=40), "shrink": False},
    "down_to_the_floor": {"policy": policies.StaticSalience, "strength": trainonce.Strength(searching=3.0)},
}


def on_disk(*states: dict[str, Any]) -> list[Any]:
    """What is left of states when they go through a file that holds tensors and plain values only."""
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    return list(torch.load(file, weights_only=True))


def ended(model: nn.Module, pruner: trainonce.Pruner) -> dict[str, Tensor]:
    return copy.deepcopy(pruner.finish().state_dict())


def assert_resumable(
    make_optimizer: Callable[[Any], torch.optim.Optimizer], settings: dict[str, Any], stops: list[int]
) -> None:
    model, optimizer, pruner = begun(make_optimizer, settings)
    saved: dict[int, list[Any]] = {}
    shrunk: set[bool] = set()

    def after(step: int, _cut: bool) -> None:
        if step + 1 in stops:
            saved[step + 1] = on_disk(pruner.state_dict(), model.state_dict(), optimizer.state_dict())
            shrunk.add(pruner.shrunk)

    if 0 in stops:
        saved[0] = on_disk(pruner.state_dict(), model.state_dict(), optimizer.state_dict())
    train(model, optimizer, pruner, steps=range(TOTAL_STEPS), size=8, after=after)
    wanted, masks = ended(model, pruner), pruner.masks
    assert shrunk == {False, settings.get("shrink", True)} or len(stops) < 4
    for stop, (pruner_state, model_state, optimizer_state) in saved.items():
        model, optimizer, pruner = begun(make_optimizer, settings)
        with torch.no_grad():
            for parameter in model.parameters():
                # Whatever a fresh model starts with must not matter.
                parameter.add_(1.0)
        pruner.load_state_dict(pruner_state)
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
        train(model, optimizer, pruner, steps=range(stop, TOTAL_STEPS), size=8)
        found = ended(model, pruner)
        assert found.keys() == wanted.keys()
        different = [name for name in wanted if not torch.equal(found[name], wanted[name])]
        assert not different, f"resumed at step {stop}: {different[0]} differs"
        assert all(torch.equal(pruner.masks[name], masks[name]) for name in masks)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_resume_at_any_phase(name: str):
    assert_resumable(OPTIMIZERS[name], {}, STOPS[::2] if name == "sgd" else STOPS[1::2])


@pytest.mark.parametrize("way", [way for way in WAYS if way != "default"])
def test_resume_with_every_way_of_choosing(way: str):
    make_optimizer = OPTIMIZERS["adamw" if way == "filter_norm" else "sgd"]
    assert_resumable(make_optimizer, WAYS[way], [40, 64, 66, 90])


def test_a_state_is_not_changed_by_loading_and_training_on():
    model, optimizer, pruner = begun(OPTIMIZERS["sgd"], {})
    train(model, optimizer, pruner, steps=range(30), size=8)
    state = copy.deepcopy(pruner.state_dict())
    again = copy.deepcopy(state)
    other, other_optimizer, resumed = begun(OPTIMIZERS["sgd"], {})
    resumed.load_state_dict(state)
    train(other, other_optimizer, resumed, steps=range(30, TOTAL_STEPS), size=8)
    assert state.keys() == again.keys()
    assert state["num_steps"] == again["num_steps"]
    assert all(
        torch.equal(state["policy"]["network"][name], again["policy"]["network"][name])
        for name in state["policy"]["network"]
    )
    assert torch.equal(state["policy"]["noise"], again["policy"]["noise"])


def stopped() -> dict[str, Any]:
    model, optimizer, pruner = begun(OPTIMIZERS["sgd"], {"policy": policies.FilterNorm})
    train(model, optimizer, pruner, steps=range(70), size=8)
    assert pruner.shrunk
    return pruner.state_dict()


def refused(pruner: trainonce.Pruner, model: nn.Module, state: dict[str, Any], words: str) -> None:
    before = copy.deepcopy(pruner.state_dict()), copy.deepcopy(model.state_dict())
    with pytest.raises(PrunerError, match=rf"^{words}[^\n]*$"):
        pruner.load_state_dict(state)
    assert same(pruner.state_dict(), before[0])
    assert all(torch.equal(tensor, before[1][name]) for name, tensor in model.state_dict().items())


def test_a_state_of_another_version_is_refused():
    model, _, pruner = begun(OPTIMIZERS["sgd"], {"policy": policies.FilterNorm})
    refused(pruner, model, stopped() | {"version": 99}, "the pruner's state has version 99")
    refused(pruner, model, {}, "the pruner's state has version None")


@pytest.mark.parametrize(
    "settings",
    [{"keep_flops": 0.7}, {"keep_flops": None, "keep_params": 0.45}, {"protect": ["1*"], "keep_flops": 0.8}],
)
def test_a_state_of_another_run_is_refused(settings: dict[str, Any]):
    model, _, pruner = begun(OPTIMIZERS["sgd"], {"policy": policies.FilterNorm} | settings)
    refused(
        pruner, model, stopped(), "the pruner's state is from a run with another model, budget or total_steps"
    )


def test_a_state_of_another_length_is_refused():
    model = convolutional(6)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    pruner = attached(
        model, optimizer, TOTAL_STEPS + 1, schedule=SCHEDULE, policy=policies.FilterNorm(), round_to=1
    )
    refused(
        pruner, model, stopped(), "the pruner's state is from a run with another model, budget or total_steps"
    )


def test_a_state_onto_a_small_model_is_refused():
    model, optimizer, pruner = begun(OPTIMIZERS["sgd"], {"policy": policies.FilterNorm})
    train(model, optimizer, pruner, steps=range(70), size=8)
    refused(pruner, model, stopped(), "this model has been cut already")


class GatedByProduct(nn.Module):
    """Two factors write each hidden unit; which of them is gated depends on the bias of the first."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.flat, self.gate, self.up = nn.Flatten(), nn.Linear(64, 24), nn.Linear(64, 24)
        self.head = nn.Linear(24, 10)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, images: Tensor) -> Tensor:
        images = self.flat(images)
        return self.head(nn.functional.silu(self.gate(images)) * self.up(images))


def test_gates_stay_where_a_run_found_them():
    def started(bias: float) -> tuple[nn.Module, Any, trainonce.Pruner]:
        model = GatedByProduct(bias)
        optimizer = OPTIMIZERS["adamw"](model.parameters())
        return model, optimizer, attached(model, optimizer, TOTAL_STEPS, schedule=SCHEDULE, round_to=1)

    def gated(pruner: trainonce.Pruner) -> list[list[int]]:
        return pruner.state_dict()["gates"].tolist()

    model, optimizer, pruner = started(2.0)
    other, other_optimizer, resumed = started(-2.0)
    assert gated(pruner) != gated(resumed), "the weights decide"
    train(model, optimizer, pruner, steps=range(20), size=8)
    states = on_disk(pruner.state_dict(), model.state_dict(), optimizer.state_dict())
    for part, state in zip((resumed, other, other_optimizer), states, strict=True):
        part.load_state_dict(state)
    assert gated(resumed) == gated(pruner)
    for run in ((model, optimizer, pruner), (other, other_optimizer, resumed)):
        train(*run, steps=range(20, TOTAL_STEPS), size=8)
    wanted, found = ended(model, pruner), ended(other, resumed)
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []
    damaged = states[0] | {"gates": states[0]["gates"][:1]}
    refused(started(2.0)[2], model, damaged, "the pruner's state is damaged: gates is ")
