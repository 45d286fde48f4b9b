"""Several optimizers in one attach make one step together: what they do is what one optimizer would."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainonce
from support.digits import attached, batch, convolutional, perceptron
from support.started import SCHEDULE, TOTAL_STEPS
from trainonce import PrunerError
from trainonce.pruning import policies
from trainonce.pruning.pulling import projection

WAYS: dict[str, dict[str, Any]] = {
    "proximal": {},
    "half space": {"policy": policies.StaticSalience, "pull": trainonce.HalfSpace(0.1)},
    "adam's metric": {"policy": policies.FilterNorm, "pull": projection.AdamMetric()},
    "no shrink": {"policy": policies.Taylor, "shrink": False},
}


def halves(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices and vectors: rows of the same unit are in both."""
    parts = list(model.parameters())
    return [part for part in parts if part.dim() > 1], [part for part in parts if part.dim() == 1]


def settings_of(way: str) -> dict[str, Any]:
    settings = {"schedule": SCHEDULE, "round_to": 1} | WAYS[way]
    return settings | ({"policy": settings["policy"]()} if "policy" in settings else {})


def train(
    model: nn.Module, optimizers: Sequence[Any], pruner: trainonce.Pruner, steps: range = range(TOTAL_STEPS)
) -> None:
    for step in steps:
        images, labels = batch(step, 8)
        held, answers = batch(step + 1_000_000, 8)
        model.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
        pruner.step(lambda: F.cross_entropy(model(held), answers))  # noqa: B023 - called inside step


def equal(some: dict[str, Any], others: dict[str, Any]) -> bool:
    return some.keys() == others.keys() and all(
        torch.equal(part, others[name]) for name, part in some.items()
    )


@pytest.mark.parametrize("way", list(WAYS))
def test_two_optimizers_are_one_with_two_groups(way: str):
    results = []
    for is_split in (False, True):
        model = convolutional(6)
        groups = [
            {"params": part, "lr": rate} for part, rate in zip(halves(model), (2e-3, 1e-3), strict=True)
        ]
        optimizers = (
            [torch.optim.AdamW([group]) for group in groups] if is_split else [torch.optim.AdamW(groups)]
        )
        pruner = attached(model, optimizers if is_split else optimizers[0], TOTAL_STEPS, **settings_of(way))
        assert pruner.optimizers == tuple(optimizers)
        train(model, optimizers, pruner)
        moments = [state["exp_avg"] for optimizer in optimizers for state in optimizer.state.values()]
        results.append((pruner.finish().state_dict(), moments))
    (one, its), (two, theirs) = results
    assert equal(one, two)
    assert all(map(torch.equal, its, theirs))
    assert one["1.0.weight"].shape[0] < 12


def test_steps_are_counted_once_and_a_step_that_is_left_out_stops_nothing():
    model = perceptron(8)
    optimizers = [torch.optim.SGD(part, lr=0.05) for part in halves(model)]
    pruner = attached(model, optimizers, TOTAL_STEPS, **settings_of("adam's metric"))
    first, second = optimizers
    # Both, one twice, one alone, none: as gradient accumulation and a GradScaler have it.
    rounds = [(first, second), (second, first), (first, first, second), (second,), ()]
    for step in range(TOTAL_STEPS):
        train(model, rounds[step % len(rounds)], pruner, range(step, step + 1))
    assert pruner.num_steps == TOTAL_STEPS
    assert pruner.finish()[1].out_features < 8


@pytest.mark.parametrize("stop", [50, 80])
def test_a_run_with_two_optimizers_resumes_bit_for_bit(stop: int):
    def begun() -> tuple[nn.Module, list[torch.optim.Optimizer], trainonce.Pruner]:
        model = perceptron(12)
        matrices, vectors = halves(model)
        optimizers = [torch.optim.SGD(matrices, lr=0.05, momentum=0.9), torch.optim.AdamW(vectors, lr=1e-3)]
        return model, optimizers, attached(model, optimizers, TOTAL_STEPS, **settings_of("proximal"))

    model, optimizers, pruner = begun()
    train(model, optimizers, pruner, range(stop))
    saved = copy.deepcopy([thing.state_dict() for thing in (pruner, model, *optimizers)])
    train(model, optimizers, pruner, range(stop, TOTAL_STEPS))
    again, others, resumed = begun()
    for thing, state in zip((resumed, again, *others), saved, strict=True):
        thing.load_state_dict(state)
    train(again, others, resumed, range(stop, TOTAL_STEPS))
    assert equal(pruner.finish().state_dict(), resumed.finish().state_dict())


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_beside_adamw():
    model = perceptron(24)
    matrices, vectors = halves(model)
    optimizers = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(vectors, lr=1e-3)]
    pruner = attached(model, optimizers, TOTAL_STEPS, **settings_of("proximal"))
    train(model, optimizers, pruner)
    small = pruner.finish()
    assert small[1].out_features < 24
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            assert all(item.shape == parameter.shape for item in state.values() if item.dim())
    train_on = [parameter.detach().clone() for parameter in small.parameters()]
    F.cross_entropy(small(batch(0, 8)[0]), batch(0, 8)[1]).backward()
    for optimizer in optimizers:
        optimizer.step()
    assert not all(map(torch.equal, train_on, small.parameters()))


def refused(optimizers: Any, words: str, model: nn.Module) -> None:
    with pytest.raises(PrunerError, match=rf"^{words}[^\n]*$"):
        attached(model, optimizers, TOTAL_STEPS)


def test_what_cant_be_followed_is_refused():
    model, other = perceptron(8), perceptron(8)
    matrices, vectors = halves(model)
    good = torch.optim.SGD(matrices, lr=0.1)
    refused([], "the list of optimizers is empty", model)
    refused([good, good], "two of the optimizers train the same parameter", model)
    refused(
        [good, torch.optim.SGD(model.parameters(), lr=0.1)], "two of the optimizers train the same", model
    )
    refused([good, torch.optim.SGD(other.parameters(), lr=0.1)], "this SGD trains none of the model's", model)
    refused([good, "adamw"], "optimizer must be a torch.optim.Optimizer, got str", model)
    refused([good, torch.optim.LBFGS(vectors)], "LBFGS keeps its state in flat vectors", model)
    assert not good._optimizer_step_post_hooks


def test_a_plan_cuts_the_state_of_all_optimizers():
    model, example = perceptron(8), batch(0, 2)[0]
    optimizers = [torch.optim.SGD(part, lr=0.1, momentum=0.9) for part in halves(model)]
    model(example).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    trainonce.cut(
        model, trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5), optimizer=optimizers
    )
    shapes = [part.shape for optimizer in optimizers for part in optimizer.state]
    moments = [
        state["momentum_buffer"].shape for optimizer in optimizers for state in optimizer.state.values()
    ]
    assert moments == shapes
    assert model[1].out_features == 4
