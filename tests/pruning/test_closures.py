"""The closure gives a new loss of the attached model and does nothing else.

Whatever it does, the user's gradients stay.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import trainonce
from support.digits import batch, convolutional
from trainonce import LossError
from trainonce.pruning.policies import AnchoredController


def searching(model: nn.Module, optimizer: torch.optim.Optimizer) -> trainonce.Pruner:
    """A pruner whose controller is due at every step."""
    schedule = trainonce.Schedule(search_from=0, shrink_from=100, settle_from=100, update_every=1)
    return trainonce.attach(
        model,
        optimizer,
        example=batch(0, 2)[0],
        keep_flops=0.5,
        total_steps=200,
        schedule=schedule,
        policy=AnchoredController(),
    )


def loss_of(model: nn.Module) -> Tensor:
    images, labels = batch(0, 8)
    return F.cross_entropy(model(images), labels)


class Setting:
    """A model with gradients, in the middle of a loop."""

    def __init__(self) -> None:
        self.model = convolutional(8)
        self.copy = copy.deepcopy(self.model)
        self.margin = nn.Parameter(torch.ones(()))
        self.optimizer = torch.optim.SGD([*self.model.parameters(), self.margin], lr=0.01)
        self.pruner = searching(self.model, self.optimizer)
        self.stale = loss_of(self.model)
        (self.stale * self.margin).backward(retain_graph=True)
        self.freed = loss_of(self.model)
        self.freed.backward()
        self.optimizer.step()

    def portrait(self) -> list[Any]:
        tensors = [*self.model.parameters(), self.margin]
        gradients = [
            (id(tensor.grad), None if tensor.grad is None else tensor.grad.clone()) for tensor in tensors
        ]
        return [[tensor.detach().clone() for tensor in self.model.state_dict().values()], gradients]


def with_backward(setting: Setting) -> Tensor:
    loss = loss_of(setting.model)
    loss.backward()
    return loss


def with_backward_that_keeps_the_graph(setting: Setting) -> Tensor:
    loss = loss_of(setting.model) * setting.margin
    loss.backward(retain_graph=True)
    return loss


def with_backward_that_gives_nothing(setting: Setting) -> None:
    loss_of(setting.model).backward()


def with_gradients_taken(setting: Setting) -> Tensor:
    loss = loss_of(setting.model)
    torch.autograd.grad(loss, list(setting.model.parameters()))
    return loss


def with_reentrant_recomputation(setting: Setting) -> Tensor:
    images, labels = batch(0, 8)
    first, *others = setting.model.children()
    hidden = checkpoint(nn.Sequential(*others), first(images), use_reentrant=True)
    return F.cross_entropy(hidden, labels)


REFUSED: dict[str, tuple[Callable[[Setting], Any], str]] = {
    "another_model": (lambda setting: loss_of(setting.copy), "does not depend on the attached model"),
    "another_parameter": (lambda setting: setting.margin * 2, "does not depend on the attached model"),
    "backward": (with_backward, "must not call backward"),
    "backward_graph_kept": (with_backward_that_keeps_the_graph, "must not call backward"),
    "backward_and_no_loss": (with_backward_that_gives_nothing, "must not call backward"),
    "gradients_taken": (with_gradients_taken, "was computed or used before"),
    "graph_freed": (lambda setting: setting.freed, "was computed or used before"),
    "reentrant": (with_reentrant_recomputation, "recomputes activations with use_reentrant=True"),
    "weights_moved_since": (lambda setting: setting.stale, "was computed or used before"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_closure_that_teaches_nothing_is_refused_in_one_line_and_leaves_nothing_behind(name: str):
    closure, words = REFUSED[name]
    setting = Setting()
    before = setting.portrait()
    policy = copy.deepcopy(setting.pruner.state_dict())
    with pytest.raises(LossError, match=rf"^the loss[^\n]*{words}[^\n]*$"):
        setting.pruner.step(lambda: closure(setting))
    after = setting.portrait()
    assert all(torch.equal(left, right) for left, right in zip(after[0], before[0], strict=True))
    for (number, gradient), (number_before, gradient_before) in zip(after[1], before[1], strict=True):
        assert number == number_before
        assert (gradient is None) == (gradient_before is None)
        assert gradient is None or torch.equal(gradient, gradient_before)
    assert setting.pruner.num_steps == policy["num_steps"] == 0
    setting.pruner.step(lambda: loss_of(setting.model))
    assert setting.pruner.controller_loss is not None


def test_a_closure_that_clears_gradients_does_no_harm():
    """The habit of closures for optimizers: the user's gradients are there afterwards."""
    setting = Setting()
    before = setting.portrait()

    def closure() -> Tensor:
        setting.optimizer.zero_grad()
        return loss_of(setting.model)

    setting.pruner.step(closure)
    assert [number for number, _ in setting.portrait()[1]] == [number for number, _ in before[1]]


def test_a_model_of_which_the_loss_sees_a_part_is_no_other_model():
    """Only the head's loss, only one branch: units that the loss does not see learn nothing in this step."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
            self.right = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.left(x), self.right(x)

    model = Branches()
    schedule = trainonce.Schedule(search_from=0, shrink_from=100, settle_from=100, update_every=1)
    inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=inputs,
        keep_flops=0.5,
        total_steps=200,
        schedule=schedule,
        policy=AnchoredController(),
    )
    pruner.step(lambda: model(inputs)[0].square().mean())
    assert pruner.controller_loss is not None
