"""A closed gate is silence, its gradient is the loss's own, and the model never notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

import trainonce
from graphs import GRAPHS
from graphs.subjects import call, fresh, inspected, output_tensors, relative_difference
from support.masks import random_masks
from trainonce.pruning.gating.gates import AJAR, Gates
from trainonce.pruning.gating.placement import find_gates
from trainonce.pruning.units import Units

RECOMPUTED = {"flow_checkpoint"}
"""The reference fails on them: they run a second time, after `functional_call` has put the weights back."""


class Called(nn.Module):
    """The model and its example as one module without inputs, for `functional_call` to replace weights."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        super().__init__()
        self.model = model
        self.example = example

    def forward(self) -> Any:
        return call(self.model, self.example)


def gated(name: str) -> tuple[nn.Module, Any, Units, Gates]:
    model, example = fresh(name)
    tensors = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    units = Units.of(inspected(name).partition, tensors.keys())
    return model, example, units, find_gates(model, units, tensors, example)


def loss_of(outputs: Any) -> Tensor:
    """A random direction in the outputs: no gradient is zero by chance."""
    generator = torch.Generator().manual_seed(5)
    tensors = [
        leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad
    ]
    return torch.stack(
        [(leaf * torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)).sum() for leaf in tensors]
    ).sum()


def reference(model: nn.Module, example: Any, gates: Gates, masks: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by autograd, through weights that are multiplied by the masks."""
    variables = masks.clone().requires_grad_()
    weights: dict[str, Tensor] = {}
    for rows in gates.rows:
        parameter = gates.tensors[rows.tensor]
        factor = torch.ones(parameter.shape[rows.axis], dtype=torch.double).index_put(
            (rows.positions,), variables[rows.units]
        )
        shape = [-1 if axis == rows.axis else 1 for axis in range(parameter.dim())]
        weights[rows.tensor] = weights.get(rows.tensor, parameter.detach()) * factor.reshape(shape)
    torch.manual_seed(0)
    loss = loss_of(
        functional_call(
            Called(model, example), {f"model.{name}": weight for name, weight in weights.items()}, ()
        )
    )
    (gradient,) = torch.autograd.grad(loss, variables)
    return loss.detach(), gradient


CROSSING = [
    "act_padding_value",
    "algebra_batched_experts",
    "algebra_functional_linear",
    "heads_multi_query",
    "shuffle_token_mixer",
]
"""Both axes of one weight are gated."""


@pytest.mark.parametrize("name", sorted({*CROSSING, *sorted(GRAPHS)[::3]}))
def test_closed_is_silent_and_the_gradient_is_autograds(name: str):
    model, example, units, gates = gated(name)
    if not len(units):
        pytest.skip("nothing may be cut")
    masks = random_masks(units, seed=0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with gates.closed(masks):
        torch.manual_seed(0)
        closed = output_tensors(model, example)
    silent, _ = fresh(name)
    trainonce.silence(silent, trainonce.Plan.from_masks(units.partition, units.split(masks)))
    torch.manual_seed(0)
    assert relative_difference(output_tensors(silent, example), closed) < 1e-9

    for point in (
        masks,
        torch.rand(len(units), generator=torch.Generator().manual_seed(1), dtype=torch.double),
    ):

        def closure() -> Tensor:
            torch.manual_seed(0)
            return loss_of(call(model, example))

        loss, gradient = gates.evaluate(closure, point)
        if name not in RECOMPUTED:
            expected_loss, expected = reference(model, example, gates, point.clamp_min(AJAR))
            assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
            assert float((gradient - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_the_gradient_is_the_finite_difference():
    model, example, units, gates = gated("flow_checkpoint")
    masks = torch.rand(len(units), generator=torch.Generator().manual_seed(1), dtype=torch.double)
    _, gradient = gates.evaluate(lambda: loss_of(call(model, example)), masks)

    def loss_at(point: Tensor) -> float:
        with gates.closed(point):
            return float(loss_of(call(model, example)).detach())

    for unit in range(0, len(units), 5):
        offset = torch.zeros_like(masks)
        offset[unit] = 1e-5
        slope = (loss_at(masks + offset) - loss_at(masks - offset)) / 2e-5
        assert float(gradient[unit]) == pytest.approx(slope, rel=1e-4, abs=1e-4 * float(gradient.abs().max()))


LAST_WRITERS: dict[tuple[str, str], set[str]] = {
    ("residual_chain", "1.conv1"): {"1.bn1"},
    ("residual_chain", "0.0"): {"0.1", "1.bn2", "2.bn2", "3.bn2"},
    ("conv_depthwise", "0.0"): {"1.1"},
    ("conv_inverted_residual", "1.layers.0"): {"1.layers.4"},
    ("conv_inverted_residual", "0.0"): {"0.1", "1.layers.7", "2.layers.7"},
    ("gate_swiglu", "0"): {"0", "1.down_proj", "2.down_proj"},
    ("heads_grouped_repeat", "1.q_proj"): {"1.v_proj"},
    ("attention_unbind", "1.qkv"): {"1.qkv"},
}


def gated_modules(units: Units, gates: Gates, group: str) -> set[str]:
    number = [other.name for other in units.groups].index(group)
    return {
        rows.tensor.rpartition(".")[0]
        for rows in gates.rows
        if bool((units.group_of[rows.units] == number).any())
    }


@pytest.mark.parametrize(("name", "group"), sorted(LAST_WRITERS))
def test_the_last_writers_are_gated(name: str, group: str):
    _, _, units, gates = gated(name)
    assert gated_modules(units, gates, group) == LAST_WRITERS[name, group]


def test_one_factor_of_a_product_is_gated():
    _, _, units, gates = gated("gate_swiglu")
    for group in ("1.gate_proj", "2.gate_proj"):
        layer = group.partition(".")[0]
        assert gated_modules(units, gates, group) in ({f"{layer}.gate_proj"}, {f"{layer}.up_proj"})


def test_squeeze_and_excitation_is_gated_behind_the_convolution():
    """The channel is a product of a norm's output and a sigmoid, which is never zero.

    Only the norm can be the gate.
    """
    _, _, units, gates = gated("gate_squeeze_excite")
    written = {group.name: {rows.tensor for rows in units.writers} for group in units.groups}
    assert written
    gated_tensors = {rows.tensor for rows in gates.rows}
    kernels = {rows.tensor for rows in units.writers if gates.tensors[rows.tensor].dim() == 4}
    with_norm = {
        name for name in kernels if f"{name.rpartition('.')[0].rpartition('.')[0]}.1.weight" in gated_tensors
    }
    assert with_norm
    assert not with_norm & gated_tensors


def test_the_gradient_of_a_closed_gate_is_that_of_a_masked_feature_map():
    """Conv, norm, ReLU.

    Closed or open, a gate on the norm must tell what a mask on the feature map would tell.
    """
    model, example, units, gates = gated("residual_chain")
    masks = random_masks(units, seed=0)
    variables = masks.clone().requires_grad_()
    pieces = units.split(variables)
    inner = [name for name in pieces if name.endswith("conv1")]
    here = torch.isin(
        units.group_of, torch.tensor([number for number, name in enumerate(pieces) if name in inner])
    )

    def masked(name: str) -> Callable[[nn.Module, Any], Tensor]:
        return lambda _module, inputs: inputs[0] * pieces[name][:, None, None]

    readers = {name: model.get_submodule(name.replace("conv1", "conv2")) for name in inner}
    hooks = [reader.register_forward_pre_hook(masked(name)) for name, reader in readers.items()]
    loss = loss_of(call(model, example))
    (expected,) = torch.autograd.grad(loss, variables)
    for hook in hooks:
        hook.remove()
    _, gradient = gates.evaluate(lambda: loss_of(call(model, example)), torch.where(here, masks, 1.0))
    assert bool((expected[here & (masks == 0)] != 0).any())
    assert float((gradient - expected)[here].abs().max()) < 1e-2 * float(expected[here].abs().max())
