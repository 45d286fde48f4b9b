"""A controller's step through the gates leaves the model as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from graphs.necks import ConvNormRelu
from support.masks import random_masks
from trainonce.errors import LossError
from trainonce.pruning.gating.gates import AJAR
from trainonce.pruning.gating.placement import find_gates
from trainonce.pruning.units import Units


class Busy(nn.Module):
    """Everything that a forward pass may disturb.

    Batch statistics, dropout, a counter, layers in different modes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvNormRelu(3, 12), nn.Dropout(0.4), ConvNormRelu(12, 8))
        self.frozen = ConvNormRelu(8, 8)
        self.head = nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.frozen(self.body(x)).mean((2, 3)))


def busy() -> Busy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Busy()
    model.frozen.eval()
    return model


def portrait(model: nn.Module) -> dict[str, Any]:
    """All that a controller's step must leave alone, as values."""
    return {
        "tensors": {name: tensor.tolist() for name, tensor in model.state_dict().items()},
        "identities": {
            name: (id(tensor), tensor.data_ptr()) for name, tensor in model.state_dict(keep_vars=True).items()
        },
        "gradients": {
            name: (id(p.grad), None if p.grad is None else p.grad.tolist())
            for name, p in model.named_parameters()
        },
        "modes": {name: module.training for name, module in model.named_modules()},
        "random": torch.get_rng_state().tolist(),
    }


def searching(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> trainonce.Pruner:
    """A pruner whose controller is due at every step."""
    return trainonce.attach(
        model,
        optimizer or torch.optim.SGD(model.parameters(), lr=0.1),
        example=torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)),
        keep_flops=0.5,
        total_steps=200,
        schedule=trainonce.Schedule(search_from=0, shrink_from=100, settle_from=100, update_every=1),
    )


def images_and_labels() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 3, 6, 6, generator=generator), torch.randint(4, (6,), generator=generator)


def test_a_controllers_step_leaves_the_model_alone():
    model = busy()
    pruner = searching(model)
    images, labels = images_and_labels()
    F.cross_entropy(model(images), labels).backward()
    before = portrait(model)
    calls = []

    def closure() -> Tensor:
        calls.append(model.body[0][1].weight.detach().clone())
        return F.cross_entropy(model.train()(images), labels)

    for _ in range(20):
        pruner.step(closure)
    assert portrait(model) == before
    assert len(calls) == 20
    assert any(bool((weight.abs() <= AJAR).any()) for weight in calls), "the gates were closed inside"


@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_closure_that_fails_leaves_the_model_alone(stage: str):
    model = busy()
    pruner = searching(model)
    images, labels = images_and_labels()
    before = portrait(model)

    def closure() -> Tensor:
        if stage == "after":
            F.cross_entropy(model.eval()(images), labels)
        raise KeyError("a label that nobody knows")

    with pytest.raises(KeyError):
        pruner.step(closure)
    assert portrait(model) == before


@pytest.mark.parametrize(
    "result",
    [None, 1.0, torch.ones(3), torch.ones(()), "loss"],
    ids=["none", "float", "vector", "constant", "text"],
)
def test_a_closure_without_a_loss_is_refused(result: Any):
    model = busy()
    pruner = searching(model)
    before = portrait(model)
    with pytest.raises(LossError, match=r"^the loss [^\n]*$"):
        pruner.step(lambda: result)
    assert portrait(model) == before


def test_inside_no_grad_the_controller_still_learns():
    model = busy()
    pruner = searching(model)
    images, labels = images_and_labels()
    with torch.no_grad():
        pruner.step(lambda: F.cross_entropy(model(images), labels))
    assert pruner.controller_loss is not None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_sees_the_gates(backend: str):
    model = busy().eval()
    compiled: Callable[..., Tensor] = torch.compile(model, backend=backend)
    images, labels = images_and_labels()
    example = images[:2]
    units = Units.of(trainonce.inspect(model, example), dict(model.named_parameters()).keys())
    gates = find_gates(model, units, dict(model.named_parameters()), example)
    F.cross_entropy(compiled(images), labels).backward()
    for seed in range(3):
        masks = random_masks(units, seed)
        plain = gates.evaluate(lambda: F.cross_entropy(model(images), labels), masks)
        seen = gates.evaluate(lambda: F.cross_entropy(compiled(images), labels), masks)
        assert torch.allclose(plain[0], seen[0], rtol=1e-5)
        assert torch.allclose(plain[1], seen[1], rtol=1e-3, atol=1e-6)
        whole = F.cross_entropy(compiled(images), labels).detach()
        assert abs(float(whole) - float(seen[0])) > 1e-4


def test_a_compiled_model_is_attached_by_its_own_module():
    model = busy()
    compiled = torch.compile(model, backend="eager")
    pruner = searching(compiled)
    images, labels = images_and_labels()
    pruner.step(lambda: F.cross_entropy(compiled(images), labels))
    assert pruner.controller_loss is not None
    assert [group.name for group in pruner.partition.groups] == [
        group.name for group in trainonce.inspect(model, images).groups
    ]
