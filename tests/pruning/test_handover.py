"""What dropped channels did is handed over: outputs stay near, and nothing else is touched."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from support.digits import attached, batch, convolutional, perceptron, same, train
from trainonce.errors import LossError
from trainonce.pruning.handover import Call, hand_over, heard_call
from trainonce.pruning.policies import FilterNorm
from trainonce.surgery.slicing import silence

STEPS, SETTLE = 60, 30


def begun(build: Callable[[], nn.Module] = convolutional, steps: int = 20) -> nn.Module:
    """A model that has learned a little: its channels say something about each other."""
    model = build().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        images, labels = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def half(model: nn.Module) -> trainonce.Plan:
    return trainonce.Plan.random(trainonce.inspect(model, batch(0, 2)[0]), keep=0.5)


def handed(model: nn.Module, plan: trainonce.Plan, images: Tensor) -> bool:
    return hand_over(model, plan, Call((images,), {}), dict(model.named_parameters()))


def outputs(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return copy.deepcopy(model).eval()(images)


def apart(left: Tensor, right: Tensor) -> float:
    return float((left - right).norm() / left.norm())


@pytest.mark.parametrize("build", [convolutional, perceptron])
def test_outputs_on_new_samples_are_nearer_than_without(build: Callable[[], nn.Module]):
    model = begun(build)
    plan, new = half(model), batch(99, 256)[0]
    wanted, plain = outputs(model, new), outputs(silence(copy.deepcopy(model), plan), new)
    assert handed(model, plan, batch(7, 256)[0])
    assert apart(wanted, outputs(model, new)) < 0.8 * apart(wanted, plain)


@pytest.mark.parametrize("build", [convolutional, perceptron])
def test_the_cut_after_it_is_exact(build: Callable[[], nn.Module]):
    model = begun(build)
    plan, images = half(model), batch(7, 256)[0]
    assert handed(model, plan, images)
    wanted = outputs(model, images)
    assert apart(wanted, outputs(trainonce.cut(model, plan), images)) < 1e-5


def test_what_others_repeat_is_handed_over_whole():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias):
            tensor[4:] = tensor[:4]
    inputs = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))
    partition = trainonce.inspect(model, inputs[:2])
    plan = trainonce.Plan.from_masks(partition, {"0": torch.arange(8) < 4})
    wanted, plain = outputs(model, inputs), outputs(silence(copy.deepcopy(model), plan), inputs)
    assert handed(model, plan, inputs)
    assert apart(wanted, outputs(model, inputs)) < 0.1 * apart(wanted, plain)


def test_only_weights_that_read_or_write_what_goes_change():
    model = begun().train()
    plan = half(model)
    model[0].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    gradients = [parameter.grad for parameter in model.parameters()]
    random = torch.get_rng_state()
    assert handed(model, plan, batch(7, 256)[0])
    touched = {cut.tensor for cut in plan.cuts} | {"4.bias"}
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert changed <= touched - {name for name, _ in model.named_buffers()}
    assert modes == [module.training for module in model.modules()]
    assert all(old is parameter.grad for old, parameter in zip(gradients, model.parameters(), strict=True))
    assert torch.equal(random, torch.get_rng_state())
    assert not any(module._forward_pre_hooks for module in model.modules())


class Strange(nn.Module):
    """From some call on it says something new each time, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.num_calls = 0
        self.fails_at: int | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.second(torch.relu(self.first(inputs)))
        if self.fails_at is not None:
            self.num_calls += 1
            if self.num_calls == self.fails_at:
                raise KeyError("a stranger's error")
            outputs = outputs + 100 * self.num_calls
        return outputs


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4, 0])
def test_where_it_fails_or_does_not_help_nothing_changes(fails_at: int):
    model = Strange()
    partition = trainonce.inspect(model, torch.randn(2, 6))
    plan = trainonce.Plan.from_masks(partition, {"first": torch.arange(8) < 4})
    model.fails_at = fails_at
    before = copy.deepcopy(model.state_dict())
    assert not handed(model, plan, torch.randn(100, 6))
    assert model.num_calls == (fails_at or 4)
    assert same(dict(before), dict(model.state_dict()))


def test_too_few_samples_change_nothing():
    model = begun(perceptron)
    before = copy.deepcopy(model.state_dict())
    assert not handed(model, half(model), batch(7, 8)[0])
    assert same(dict(before), dict(model.state_dict()))


def test_frozen_and_shared_weights_are_left_as_they_are():
    model = begun(perceptron)
    plan = half(model)
    model[3].weight.requires_grad_(False)
    model[3].bias.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kept = list(next(cut.kept for cut in plan.cuts if (cut.tensor, cut.axis) == ("3.weight", 0)))
    assert handed(model, plan, batch(7, 256)[0])
    assert torch.equal(model[3].weight[kept], before["3.weight"][kept])
    assert torch.equal(model[3].bias[kept], before["3.bias"][kept])


@pytest.mark.parametrize("compiled", [True, False])
def test_the_call_of_the_model_is_heard(compiled: bool):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called = torch.compile(model, backend="eager") if compiled else model
    images, labels = batch(0)
    called(images)
    heard = heard_call(model, optimizer, lambda: F.cross_entropy(called(images), labels))
    assert heard is not None
    assert torch.equal(heard.args[0], images)
    assert heard_call(model, optimizer, None) is None
    assert heard_call(model, optimizer, lambda: torch.ones((), requires_grad=True)) is None
    with pytest.raises(LossError, match="must not call backward"):
        heard_call(model, optimizer, lambda: backward(F.cross_entropy(model(images), labels)))
    assert not model._forward_pre_hooks


def backward(loss: Tensor) -> Tensor:
    loss.backward()
    return loss


def pruned(*, tells_loss: bool = True, **settings: object) -> tuple[list[int], nn.Module]:
    """A run of filter norms with one cut; the steps in which it was cut, and the small model."""
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = trainonce.Schedule(first_cut_from=SETTLE, settle_from=SETTLE)
    settings = {"strength": trainonce.Strength(hand_over=True)} | settings
    pruner = attached(model, optimizer, STEPS, policy=FilterNorm(2), schedule=schedule, **settings)
    if not tells_loss:
        step = pruner.step
        pruner.step = lambda _: step()  # type: ignore[method-assign]
    cuts: list[int] = []

    def after(step: int, cut: bool) -> None:
        if cut:
            cuts.append(step)

    train(model, optimizer, pruner, steps=range(STEPS), after=after)
    return cuts, pruner.finish()


def test_the_model_is_cut_in_the_step_of_the_decision():
    cuts, _ = pruned()
    assert cuts == [SETTLE - 1]


@pytest.mark.parametrize("way", ["no loss", "off"])
def test_without_it_dropped_channels_are_pulled(way: str):
    strength = trainonce.Strength(hand_over=way != "off", zero_within=0.2)
    cuts, _ = pruned(tells_loss=way != "no loss", strength=strength)
    assert len(cuts) == 1
    assert cuts[0] > SETTLE


def test_cutting_at_the_end_takes_the_same_steps():
    _, at_once = pruned()
    _, at_the_end = pruned(shrink=False)
    images = batch(99, 256)[0]
    assert apart(outputs(at_once, images), outputs(at_the_end, images)) < 1e-3
