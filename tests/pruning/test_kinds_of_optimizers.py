"""What a cut means to the optimizers of other packages: always exact, and for most so is the whole run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from support.digits import attached, batch, perceptron, predictions
from trainonce import PrunerError
from trainonce.pruning import policies

STEPS = 100


def free(name: str, **settings: Any) -> Callable[[nn.Module], list[Any]]:
    def make(model: nn.Module) -> list[Any]:
        package = pytest.importorskip("schedulefree", reason="needs schedulefree")
        return [getattr(package, name)(model.parameters(), **settings)]

    return make


def timms(name: str, **settings: Any) -> Callable[[nn.Module], list[Any]]:
    def make(model: nn.Module) -> list[Any]:
        package = pytest.importorskip("timm.optim", reason="needs timm")
        return [getattr(package, name)(model.parameters(), **settings)]

    return make


def muon(model: nn.Module) -> list[Any]:
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    parts = list(model.parameters())
    return [
        torch.optim.Muon([part for part in parts if part.dim() > 1], lr=0.02),
        torch.optim.AdamW([part for part in parts if part.dim() == 1], lr=1e-3),
    ]


EXACT: dict[str, Callable[[nn.Module], list[Any]]] = {
    "adamw": lambda model: [torch.optim.AdamW(model.parameters(), lr=2e-3)],
    "SGDScheduleFree": free("SGDScheduleFree", lr=1.0),
    "AdamWScheduleFree": free("AdamWScheduleFree", lr=5e-3, warmup_steps=5),
    "RAdamScheduleFree": free("RAdamScheduleFree", lr=5e-3),
    "lars": timms("Lars", lr=5.0, momentum=0.9, weight_decay=1e-4),
    "lamb": timms("Lamb", lr=1e-2, weight_decay=1e-2),
}
"""Units that are zero change nothing in these."""

BY_SHAPE: dict[str, Callable[[nn.Module], list[Any]]] = {
    "muon beside adamw": muon,
    "adafactor": lambda model: [torch.optim.Adafactor(model.parameters(), lr=1e-2)],
}
"""Steps depend on how large a matrix is, or on means over its axes."""


def into(mode: str, optimizers: Sequence[Any]) -> None:
    """Put schedule-free optimizers, which swap the weights, into a mode."""
    for optimizer in optimizers:
        getattr(optimizer, mode, lambda: None)()


def outputs(model: nn.Module, optimizers: Sequence[Any]) -> Tensor:
    """The model's outputs on both sequences of weights, the one in training and the one for evaluation."""
    trained = predictions(model)
    into("eval", optimizers)
    evaluated = predictions(model)
    into("train", optimizers)
    return torch.stack([trained, evaluated])


def run(make: Callable[[nn.Module], list[Any]], *, shrink: bool) -> tuple[Tensor, float]:
    """The small model's outputs, and how much the cuts have changed any output."""
    model = perceptron(24).double()
    optimizers = make(model)
    into("train", optimizers)
    settings = {"policy": policies.FilterNorm(), "shrink": shrink, "round_to": 1}
    pruner = attached(model, optimizers, STEPS, **settings)
    changed = 0.0
    for step in range(STEPS):
        images, labels = batch(step, 32, torch.float64)
        model.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for optimizer in optimizers:
            optimizer.step()
        before = outputs(model, optimizers)
        if pruner.step():
            changed = max(changed, float((outputs(model, optimizers) - before).abs().max()))
    assert len(pruner.cuts) == 2 * shrink
    into("eval", optimizers)
    before = predictions(model)
    small = pruner.finish()
    changed = max(changed, float((predictions(small) - before).abs().max()))
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            whole = [item for item in state.values() if isinstance(item, Tensor) and item.dim()]
            assert all(
                a in (1, b) for item in whole for a, b in zip(item.shape, parameter.shape, strict=True)
            )
    assert small[1].out_features < 24
    return predictions(small), changed


@pytest.mark.parametrize("name", list(EXACT))
def test_a_run_with_cuts_is_the_run_without(name: str):
    cut, changed = run(EXACT[name], shrink=True)
    whole, changed_at_the_end = run(EXACT[name], shrink=False)
    assert max(changed, changed_at_the_end) < 1e-12
    assert torch.allclose(cut, whole, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", list(BY_SHAPE))
def test_no_cut_changes_an_output(name: str):
    _, changed = run(BY_SHAPE[name], shrink=True)
    assert changed < 1e-12


def test_a_schedule_free_wrapper_is_refused():
    package = pytest.importorskip("schedulefree", reason="needs schedulefree")
    model = perceptron(8)
    wrapper = package.ScheduleFreeWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(PrunerError, match=r"^optimizer must be a torch\.optim\.Optimizer, got ScheduleFree"):
        trainonce.attach(model, wrapper, example=torch.zeros(2, 64), keep_flops=0.5, total_steps=STEPS)
