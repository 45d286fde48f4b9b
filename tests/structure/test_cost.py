"""The cost of a model and of a plan is what torch's own counter says, exactly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs import GRAPHS
from graphs.subjects import count_macs, count_parameters, fresh, inspected, masks_of

every_net = pytest.mark.parametrize("name", sorted(GRAPHS))


@every_net
def test_full_cost_equals_the_counter(name: str):
    partition = inspected(name).partition
    model, example = fresh(name)
    assert partition.macs == count_macs(model, example, on_meta=GRAPHS[name].on_meta)
    assert partition.num_parameters == count_parameters(model)


@every_net
@pytest.mark.parametrize(("keep", "seed"), [(0.5, 0), (0.3, 1)])
def test_cost_of_a_plan_equals_the_counter_on_the_cut_model(name: str, keep: float, seed: int):
    partition = inspected(name).partition
    model, example = fresh(name)
    plan = trainonce.Plan.random(partition, keep=keep, seed=seed)
    trainonce.cut(model, plan)
    masks = masks_of(partition, plan)
    assert float(trainonce.cost.macs(partition, masks)) == count_macs(
        model, example, on_meta=GRAPHS[name].on_meta
    )
    assert float(trainonce.cost.parameters(partition, masks)) == count_parameters(model)


@every_net
def test_cost_of_ones_is_the_full_cost(name: str):
    partition = inspected(name).partition
    masks = {group.name: torch.ones(group.num_channels, dtype=torch.double) for group in partition.groups}
    assert float(trainonce.cost.macs(partition, masks)) == partition.macs
    assert float(trainonce.cost.parameters(partition, masks)) == partition.num_parameters


def two_layers() -> nn.Module:
    """8 x 8 images: a convolution from 3 to 6 channels, a grouped one to 8, a pooled linear layer to 4."""
    layers = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1, groups=2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def test_cost_by_hand():
    partition = trainonce.inspect(two_layers(), torch.randn(1, 3, 8, 8))
    first, second, third = 64 * 9 * 3 * 6, 64 * 9 * 3 * 8, 8 * 4
    assert partition.macs == first + second + third
    assert partition.num_parameters == (9 * 3 * 6 + 6) + (9 * 3 * 8 + 8) + (8 * 4 + 4)


def test_cost_grows_with_the_batch():
    one = trainonce.inspect(two_layers(), torch.randn(1, 3, 8, 8))
    five = trainonce.inspect(two_layers(), torch.randn(5, 3, 8, 8))
    assert five.macs == 5 * one.macs
    assert five.num_parameters == one.num_parameters


@pytest.mark.parametrize(
    "name", ["residual_downsample", "attention_unbind", "conv_grouped_residual", "concat_dense_block"]
)
@pytest.mark.parametrize("cost", [trainonce.cost.macs, trainonce.cost.parameters])
def test_gradient_equals_the_finite_difference(name: str, cost):
    partition = inspected(name).partition
    generator = torch.Generator().manual_seed(0)
    masks = {
        group.name: (
            0.2 + 0.8 * torch.rand(group.num_channels, generator=generator, dtype=torch.double)
        ).requires_grad_()
        for group in partition.groups
    }
    value = cost(partition, masks)
    gradients = torch.autograd.grad(value, list(masks.values()), allow_unused=True)
    assert any(gradient is not None and bool(gradient.any()) for gradient in gradients)
    for group_name, gradient in zip(masks, gradients, strict=True):
        expected = finite_difference(
            lambda point, key=group_name: cost(partition, masks | {key: point}), masks[group_name].detach()
        )
        actual = torch.zeros_like(expected) if gradient is None else gradient
        assert float((actual - expected).abs().max()) <= 1e-6 * float(value.detach())


def finite_difference(function, point: Tensor, step: float = 1e-3) -> Tensor:
    """Central differences; the cost is a polynomial of low degree in each entry."""
    slopes = torch.zeros_like(point)
    for index in range(point.numel()):
        offset = torch.zeros_like(point)
        offset[index] = step
        slopes[index] = (function(point + offset) - function(point - offset)).detach() / (2 * step)
    return slopes


@pytest.mark.parametrize("name", ["residual_chain", "gate_swiglu", "heads_grouped_repeat"])
def test_every_removed_channel_makes_it_cheaper(name: str):
    partition = inspected(name).partition
    for group in partition.prunable_groups:
        masks = {other.name: torch.ones(other.num_channels, dtype=torch.double) for other in partition.groups}
        masks[group.name][0] = 0
        assert float(trainonce.cost.macs(partition, masks)) < partition.macs
        assert float(trainonce.cost.parameters(partition, masks)) < partition.num_parameters
