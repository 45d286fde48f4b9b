"""An optimizer that is never called, or was replaced, is noticed after a few steps.

One that a scaler skips now and then is none.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainonce
from support.digits import attached, batch, convolutional, train
from trainonce import PrunerError, Schedule
from trainonce.pruning import policies
from trainonce.pruning.guards.stepwatch import MANY, NEVER, STRANGE

MOVED = (
    r"^the model's weights change, but not through the attached SGD\. [^\n]*if you created a new optimizer, "
    r"attach to that one\.$"
)
NOT_CALLED = (
    r"^optimizer\.step\(\) of the attached SGD was not called in the last \d+ calls of pruner\.step\(\)\. "
    r"[^\n]*$"
)


def quiet(model: nn.Module, optimizer: Any, total_steps: int = 60, **settings: Any) -> trainonce.Pruner:
    settings = {"policy": policies.FilterNorm(), "schedule": Schedule.paper()} | settings
    return attached(model, optimizer, total_steps, **settings)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05)


REPLACED = {
    "sgd": sgd,
    "fused": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True),
    "one_by_one": lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False),
}


@pytest.mark.parametrize("name", list(REPLACED))
def test_an_optimizer_that_was_replaced_is_noticed_at_once(name: str):
    model = convolutional(8)
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    train(model, optimizer, pruner, steps=range(3), size=8)
    other = REPLACED[name](model)
    train(model, other, pruner, steps=range(3, 4), size=8)
    with pytest.warns(RuntimeWarning, match=MOVED) as said:
        train(model, other, pruner, steps=range(4, 5), size=8)
    assert said[0].filename.endswith("digits.py"), "it points at the user's loop"
    # A second warning would fail the test.
    train(model, other, pruner, steps=range(5, 3 + STRANGE), size=8)
    with pytest.raises(PrunerError, match=MOVED):
        train(model, other, pruner, steps=range(3 + STRANGE, 4 + STRANGE), size=8)
    assert pruner.num_steps == 3 + STRANGE
    train(model, optimizer, pruner, steps=range(3 + STRANGE, 60), size=8)
    assert pruner.finish() is model


def test_an_optimizer_that_never_steps_is_noticed_early_and_named_at_the_end():
    model = convolutional(8)
    pruner = quiet(model, sgd(model))
    for _ in range(MANY):
        pruner.step()
    with pytest.warns(RuntimeWarning, match=NOT_CALLED):
        pruner.step()
    for _ in range(60 - MANY - 1):
        pruner.step()
    with pytest.raises(
        PrunerError,
        match=(
            r"^finish\(\) was called after 60 of 60 steps, but optimizer\.step\(\) of the attached SGD[^\n]*$"
        ),
    ):
        pruner.finish()


@pytest.mark.filterwarnings("ignore:optimizer.step:RuntimeWarning")
def test_a_long_run_without_any_optimizer_step_is_ended():
    model = convolutional(8)
    pruner = quiet(model, sgd(model), total_steps=1000)
    for _ in range(NEVER - 1):
        pruner.step()
    with pytest.raises(PrunerError, match=NOT_CALLED):
        pruner.step()


def test_a_replaced_optimizer_is_named_at_the_end_of_a_run_that_is_shorter():
    model = convolutional(8)
    pruner = quiet(model, sgd(model), total_steps=8)
    with pytest.warns(RuntimeWarning, match=MOVED):
        train(model, sgd(model), pruner, steps=range(8), size=8)
    with pytest.raises(
        PrunerError,
        match=(r"^finish\(\) was called after 8 of 8 steps, but the model's weights change, but not through"),
    ):
        pruner.finish()


class SkippingScaler:
    """What GradScaler does to an optimizer that is not fused.

    It is called only if all gradients are finite.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, skipped: set[int]) -> None:
        self._optimizer, self._skipped, self._step = optimizer, skipped, 0

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    def step(self) -> None:
        if self._step not in self._skipped:
            self._optimizer.step()
        self._step += 1


@pytest.mark.parametrize(
    "skipped",
    [set(range(17)), {0, 1, 2, 20, 21, 40}, set(range(0, 60, 2))],
    ids=["start", "seldom", "accumulated"],
)
def test_steps_that_a_scaler_skips_are_no_offence(skipped: set[int]):
    model = convolutional(8)
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, SkippingScaler(optimizer, skipped), pruner, steps=range(60), size=8)
    assert pruner.finish() is model


def test_a_grad_scaler_that_skips_its_first_steps_is_no_offence():
    model = convolutional(8)
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    num_skipped = 0
    for step in range(60):
        images, labels = batch(step, 8)
        optimizer.zero_grad()
        scaler.scale(64 * F.cross_entropy(model(images), labels)).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        num_skipped += scaler.get_scale() < before
        pruner.step()
    assert num_skipped >= 5
    assert pruner.finish() is model


def test_weights_loaded_between_two_steps_are_no_other_optimizer():
    """A restart from the best weights in the middle of a run, and a scaler that skips once."""
    model = convolutional(8)
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    train(model, optimizer, pruner, steps=range(5), size=8)
    best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train(model, optimizer, pruner, steps=range(5, 10), size=8)
    model.load_state_dict(best)
    pruner.step()
    train(model, optimizer, pruner, steps=range(11, 60), size=8)
    assert pruner.finish() is model


def test_accumulated_gradients_with_accelerate():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model: Any = convolutional(8)
    optimizer: Any
    model, optimizer = accelerator.prepare(model, sgd(model))
    pruner = quiet(model, optimizer, total_steps=80)
    for step in range(80):
        with accelerator.accumulate(model):
            images, labels = batch(step, 8)
            accelerator.backward(F.cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
        pruner.step()
    assert pruner.finish() is accelerator.unwrap_model(model)
