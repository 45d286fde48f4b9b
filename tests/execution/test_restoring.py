"""Whatever a run does to a model, afterwards it is as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from graphs.subjects import snapshot as described
from trainonce.execution.restoring import (
    attributes_kept,
    buffers_kept,
    contents_kept,
    gradients_aside,
    modes_kept,
    snapshot,
    weights_lent,
)


class Norm(nn.Module):
    """Some of everything that can be changed: parameters, buffers (one of them expanded), sizes, modes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.width = 4
        self.register_buffer("table", torch.arange(3.0))
        self.register_buffer("same", torch.ones(1).expand(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.width


def write_in_place(model: Norm) -> None:
    model.table.mul_(2)
    model.norm.running_mean.add_(1)


def replace_by_another(model: Norm) -> None:
    model.table = torch.zeros(7)


def make_longer(model: Norm) -> None:
    model.table.data = torch.zeros(9)


def fail_midway(model: Norm) -> None:
    model.table.add_(1)
    raise KeyError("midway")


@pytest.mark.parametrize("change", [write_in_place, replace_by_another, make_longer, fail_midway])
def test_buffers_are_as_before(change: Callable[[Norm], None]):
    model = Norm()
    before = described(model)
    try:
        with buffers_kept(model):
            change(model)
            assert described(model)["tensors"] != before["tensors"]
    except KeyError:
        assert change is fail_midway
    assert described(model) == before


def test_modes_and_the_random_stream_are_as_before():
    model = Norm()
    model.norm.eval()
    before = described(model)
    with modes_kept(model):
        model.eval()
        torch.rand(3)
        assert described(model) != before
    assert described(model) == before


def test_gradients_are_the_very_same_objects():
    model = Norm()
    model(torch.randn(3, 4)).square().sum().backward()
    before = [(parameter.grad, parameter.grad.clone()) for parameter in model.parameters()]
    with gradients_aside(model.parameters()):
        assert all(parameter.grad is None for parameter in model.parameters())
        model(torch.randn(3, 4)).sum().backward()
    for parameter, (gradient, content) in zip(model.parameters(), before, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, content)


def test_contents_come_back_into_the_same_memory():
    tensor = torch.arange(6.0)
    view, place = tensor[2:], tensor.data_ptr()
    with contents_kept([tensor]) as (copy,):
        tensor.zero_()
        assert torch.equal(copy, torch.arange(6.0))
    assert torch.equal(tensor, torch.arange(6.0))
    assert (tensor.data_ptr(), view.tolist()) == (place, [2, 3, 4, 5])


def test_attributes_that_came_are_gone_and_those_that_went_are_back():
    model = Norm()
    before = described(model)
    with attributes_kept(model):
        model.width, model.novelty = 9, 1
        model.norm.register_buffer("extra", torch.ones(1))
        del model.table
    assert described(model) == before


def test_a_snapshot_restores_data_gradients_and_optimizer_state():
    model = Norm()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    before = described(model)
    state = {name: dict(optimizer.state[parameter]) for name, parameter in model.named_parameters()}
    restore = snapshot(model, [optimizer])
    for parameter in model.parameters():
        parameter.grad = None
        parameter.data = torch.zeros(2)
        optimizer.state[parameter]["exp_avg"] = torch.zeros(2)
    model.width = 2
    restore()
    assert described(model) == before
    for name, parameter in model.named_parameters():
        assert all(optimizer.state[parameter][key] is item for key, item in state[name].items())


def test_lent_weights_are_taken_back_after_an_error():
    model = Norm()
    before = described(model)

    def borrow() -> None:
        with weights_lent(model):
            model.norm.weight.data = torch.zeros(1, dtype=torch.float64)
            raise RuntimeError("does not run")

    with pytest.raises(RuntimeError, match="does not run"):
        borrow()
    assert described(model) == before
