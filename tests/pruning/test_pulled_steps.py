"""The pull follows the optimizer: its learning rates, its state, its skipped steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from graphs.necks import ConvNormRelu
from support.pulled import PULLED, STRENGTH, copies, second_moments, stepped
from support.ragged import shrunk, shrunk_in_metric
from support.scattered import gathered, lengths, scattered_units
from trainonce.pruning.pulling.projection import AdamMetric, HalfSpace, Projection, Proximal, Pull
from trainonce.pruning.units import Units


class Lion(torch.optim.Optimizer):
    """Somebody else's optimizer.

    The sign of a mean of gradients (Chen et al., 2023), with its own names for its state.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                    parameter.sub_(group["lr"] * torch.sign(0.9 * mean + 0.1 * parameter.grad))
                    mean.mul_(0.99).add_(parameter.grad, alpha=0.01)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, weight_decay=1e-2, foreach=False
    ),
    "nesterov_foreach": lambda parameters: torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=True
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=False),
    "adam_foreach": lambda parameters: torch.optim.Adam(parameters, lr=0.1, amsgrad=True, foreach=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1, foreach=False),
    "adamw_foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1, foreach=True),
    "adamw_fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1, fused=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(
        parameters, lr=0.1, momentum=0.5, centered=True, foreach=False
    ),
    "rmsprop_foreach": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1, foreach=True),
    "foreign": lambda parameters: Lion(parameters, lr=0.1),
}


every_optimizer = pytest.mark.parametrize("make_optimizer", list(OPTIMIZERS.values()), ids=list(OPTIMIZERS))


def test_each_parameter_is_pulled_by_its_own_learning_rate():
    units, tensors = scattered_units()
    rates = {"kernel": 0.1, "bias": 0.02, "scale": 0.0, "reader": 0.05, "heads": 0.1}
    optimizer = torch.optim.SGD(
        [{"params": [parameter], "lr": rates[name]} for name, parameter in tensors.items()], lr=1.0
    )
    projection = Projection(units, tensors, optimizer)
    projection.select(PULLED)
    before = copies(tensors)
    projection.apply(Proximal(), STRENGTH)
    assert torch.equal(tensors["scale"], before["scale"])
    for unit in PULLED.nonzero().flatten().tolist():
        norm = float(gathered(units, before, unit).norm())
        pieces = gathered(units, tensors, unit), gathered(units, before, unit)
        sizes = [length for _, length in lengths(units, tensors, unit)]
        names = [name for name, _ in lengths(units, tensors, unit)]
        for name, after, old in zip(names, pieces[0].split(sizes), pieces[1].split(sizes), strict=True):
            assert torch.allclose(
                after, old * max(0.0, 1 - rates[name] * STRENGTH / norm), rtol=1e-12, atol=1e-14
            )


def test_learning_rates_weigh_the_metric():
    """A parameter's learning rate divides its metric: the answer solves the minimisation with A / eta."""
    units, tensors = scattered_units()
    rates = {"kernel": 0.1, "bias": 0.02, "scale": 0.07, "reader": 0.05, "heads": 0.1}
    optimizer = torch.optim.Adam(
        [{"params": [parameter], "lr": rates[name]} for name, parameter in tensors.items()]
    )
    projection = Projection(units, tensors, optimizer)
    projection.select(PULLED)
    stepped(tensors, optimizer)
    before, metrics = copies(tensors), second_moments(tensors, optimizer)
    weighed = {name: metric / rates[name] for name, metric in metrics.items()}
    projection.apply(AdamMetric(), 5.0)
    for unit in PULLED.nonzero().flatten().tolist():
        wanted = shrunk_in_metric(
            gathered(units, before, unit)[None], gathered(units, weighed, unit)[None], 5.0
        )[0]
        assert bool(wanted.any())
        assert torch.allclose(gathered(units, tensors, unit), wanted, rtol=1e-10, atol=1e-12)


@every_optimizer
def test_state_of_zeroed_rows_is_cleared(make_optimizer: Callable[[Any], torch.optim.Optimizer]):
    units, tensors = scattered_units()
    optimizer = make_optimizer(tensors.values())
    projection = Projection(units, tensors, optimizer)
    projection.select(PULLED)
    for seed in (1, 2):
        stepped(tensors, optimizer, seed=seed)
    projection.apply(Proximal(), 1e3)
    for parameter in tensors.values():
        for item in optimizer.state[parameter].values():
            if isinstance(item, Tensor) and item.shape == parameter.shape:
                for rows in units.writers:
                    if tensors[rows.tensor] is parameter:
                        picked = item.index_select(rows.axis, rows.positions).movedim(rows.axis, 0)
                        assert not bool(picked[PULLED[rows.units]].any())
                        assert bool(picked[~PULLED[rows.units]].all())
            elif isinstance(item, Tensor) and item.dim() == 0:
                assert float(item) == 2
    for parameter in tensors.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert projection.all_zero(), "without momentum and gradient nothing may leave zero"


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            ConvNormRelu(3, 12), ConvNormRelu(12, 8), nn.Flatten(), nn.Linear(8 * 16, 4)
        ).double()


def batch(seed: int, size: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, 4, 4, generator=generator, dtype=torch.double), torch.randint(
        4, (size,), generator=generator
    )


def pruned(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, pull: Pull | None = None, strength: float = 1.0
) -> trainonce.Pruner:
    """A pruner that pulls all units from its second step on."""
    return trainonce.attach(
        model,
        optimizer,
        example=batch(0)[0],
        keep_flops=0.5,
        total_steps=100,
        policy=trainonce.policies.PenalizeAll(),
        schedule=trainonce.Schedule(search_from=0, shrink_from=0, settle_from=90, update_every=1),
        strength=trainonce.Strength(searching=strength),
        pull=pull,
        shrink=False,
    )


@every_optimizer
@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
def test_a_step_is_the_optimizers_own_and_then_the_pull(
    make_optimizer: Callable[[Any], torch.optim.Optimizer], clip: bool
):
    """The same step on a twin without a pruner, followed by the pure operator."""
    model, twin = net(), net()
    optimizer, other = make_optimizer(model.parameters()), make_optimizer(twin.parameters())
    pruner = pruned(model, optimizer)
    units = Units.of(pruner.partition, dict(model.named_parameters()).keys())
    tensors = dict(twin.named_parameters())
    for step in range(4):
        images, labels = batch(step)
        twin.load_state_dict(model.state_dict())
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for network, stepper in ((model, optimizer), (twin, other)):
            stepper.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            if clip:
                nn.utils.clip_grad_norm_(network.parameters(), 0.01)
            stepper.step()
        if step:
            for unit in range(len(units)):
                shorter = shrunk(gathered(units, tensors, unit)[None], 0.1 * 1.0)[0]
                assert torch.allclose(
                    gathered(units, dict(model.named_parameters()), unit), shorter, rtol=1e-10, atol=1e-13
                )
        else:
            assert all(
                torch.equal(mine, theirs)
                for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True)
            )
        assert all(
            torch.equal(mine, theirs)
            for mine, theirs in zip(model[3].parameters(), twin[3].parameters(), strict=True)
        )
        pruner.step()


def test_gradient_accumulation_pulls_once_per_step():
    model, twin = net().eval(), net().eval()
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9) for network in (model, twin)]
    pruners = [
        pruned(network, optimizer) for network, optimizer in zip((model, twin), optimizers, strict=True)
    ]
    for step in range(5):
        images, labels = batch(step)
        optimizers[0].zero_grad()
        optimizers[1].zero_grad()
        F.cross_entropy(model(images), labels).backward()
        for half in (slice(0, 4), slice(4, 8)):
            (F.cross_entropy(twin(images[half]), labels[half]) / 2).backward()
        for optimizer, pruner in zip(optimizers, pruners, strict=True):
            optimizer.step()
            pruner.step()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("pull", [Proximal(), HalfSpace()], ids=["proximal", "half_space"])
def test_a_step_that_the_scaler_skips_pulls_nothing(fused: bool, pull: Pull):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    pruner = pruned(model, optimizer, pull=pull)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    moved = []
    for step in range(6):
        images, labels = batch(step)
        if step in (2, 4):
            images = images * float("inf")
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.zero_grad()
        for module in model.modules():
            module.training = step not in (2, 4)
        scaler.scale(F.cross_entropy(model(images), labels)).backward()
        scaler.step(optimizer)
        scaler.update()
        pruner.step()
        moved.append(
            any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
        )
    assert moved == [True, True, False, True, False, True]


def test_the_optimizers_state_dict_is_that_of_a_run_without_a_pruner():
    model, twin = net(), net()
    optimizer, other = (torch.optim.AdamW(network.parameters(), lr=0.1) for network in (model, twin))
    pruned(model, optimizer)
    for network, stepper in ((model, optimizer), (twin, other)):
        F.cross_entropy(network(batch(0)[0]), batch(0)[1]).backward()
        stepper.step()
    mine, theirs = optimizer.state_dict(), other.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    assert {key: sorted(state) for key, state in mine["state"].items()} == {
        key: sorted(state) for key, state in theirs["state"].items()
    }
