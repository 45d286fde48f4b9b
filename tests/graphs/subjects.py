"""A registered net made ready for a test: weights that hide nothing, float64, evaluation mode.

Also what a test asks of a model: its outputs, its state down to the attributes, its multiply-adds.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

import trainonce
from graphs.registry import GRAPHS

PLAIN_TYPES = (bool, int, float, str, tuple, list, dict, type(None))


def redraw(model: nn.Module, seed: int = 0) -> None:
    """Give every parameter values that a wrong cut can't hide behind.

    Initial values are often zero or tiny (layer scale, norms, tables of positions).
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(tensor: Tensor) -> Tensor:
        return torch.randn(tensor.shape, generator=generator).to(tensor)

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                fan_in = parameter.numel() // parameter.shape[0]
                parameter.copy_(noise(parameter) / math.sqrt(fan_in))
            else:
                parameter.add_(0.3 * noise(parameter))


def redraw_statistics(model: nn.Module, example: Any, seed: int = 0) -> None:
    """Put batch norms' running statistics beside those of the example, away from 0 and 1.

    Statistics far from the data would leave channels dead behind a ReLU, and nobody would miss them.
    """
    norms = [
        m
        for m in model.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None
    ]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return
    for norm in norms:
        norm.momentum = 1.0
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        call(model.train(), example)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.running_mean += 0.3 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean)
            norm.running_var *= torch.exp(0.3 * torch.randn_like(norm.running_var))


def to_double(example: Any) -> Any:
    """The same example with its floats in double precision."""
    return pytree.tree_map_only(Tensor, lambda x: x.double() if x.is_floating_point() else x.clone(), example)


def another_input(example: Any, seed: int = 1) -> Any:
    """An input of the same shapes that inspection has not seen; integers and masks stay as they are."""
    generator = torch.Generator().manual_seed(seed)

    def draw(x: Tensor) -> Tensor:
        is_mask = not x.is_floating_point() or bool(((x == 0) | (x == 1)).all())
        return x.clone() if is_mask else torch.randn(x.shape, generator=generator, dtype=x.dtype)

    return pytree.tree_map_only(Tensor, draw, example)


def call(model: nn.Module, example: Any) -> Any:
    """What the model returns; the example is copied, as some models write into their input."""
    example = pytree.tree_map_only(Tensor, Tensor.clone, example)
    if isinstance(example, dict):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


def output_tensors(model: nn.Module, example: Any) -> list[Tensor]:
    """All tensors that the model returns, in order."""
    with torch.no_grad():
        return [leaf for leaf in pytree.tree_leaves(call(model, example)) if isinstance(leaf, Tensor)]


def relative_difference(before: list[Tensor], after: list[Tensor]) -> float:
    """The largest difference between two outputs, in units of each tensor's largest entry."""
    assert [x.shape for x in before] == [y.shape for y in after]
    worst = 0.0
    for x, y in zip(before, after, strict=True):
        if x.numel() > 0:
            assert bool(torch.isfinite(x).all())
            scale = max(float(x.abs().max()), torch.finfo(torch.double).tiny)
            worst = max(worst, float((x.double() - y.double()).abs().max()) / scale)
    return worst


def random_states() -> tuple[Any, ...]:
    """Both generators that a model may draw from."""
    return torch.get_rng_state().tolist(), random.getstate()


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that inspection must leave alone, as values that can be compared with ==."""
    modules = {
        name: {
            "class": type(module),
            "attributes": sorted(vars(module)),
            "plain": {key: copy.deepcopy(value) for key, value in vars(module).items() if _is_plain(value)},
            "hooks": [len(value) for key, value in sorted(vars(module).items()) if key.endswith("_hooks")],
        }
        for name, module in model.named_modules()
    }
    tensors = {
        name: (
            id(tensor),
            tensor.requires_grad,
            tensor.grad is None,
            tensor.dtype,
            tensor.shape,
            tensor.tolist(),
        )
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    }
    return {"modules": modules, "tensors": tensors, "random": random_states()}


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(entry) for entry in value.values())
    if isinstance(value, (tuple, list)):
        return all(_is_plain(entry) for entry in value)
    return isinstance(value, PLAIN_TYPES)


def count_macs(model: nn.Module, example: Any, *, on_meta: bool = True) -> int:
    """Multiply-adds by torch's own counter, which counts two operations for each."""
    model = copy.deepcopy(model)
    if on_meta:
        model = model.to("meta")
        example = pytree.tree_map_only(Tensor, lambda x: x.to("meta"), example)
    counter = FlopCounterMode(display=False)
    with counter:
        call(model, example)
    flops = counter.get_total_flops()
    assert flops % 2 == 0
    return flops // 2


def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def fresh(name: str) -> tuple[nn.Module, Any]:
    """The net of that name and its example, equal at every call."""
    model, example = GRAPHS[name].build()
    model, example = model.double(), to_double(example)
    redraw(model)
    redraw_statistics(model, example)
    return model.eval(), example


@dataclass(frozen=True, slots=True, eq=False)
class Inspected:
    """A net, what inspection said about it, and its snapshots before and after."""

    partition: trainonce.Partition
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@cache
def inspected(name: str) -> Inspected:
    """Inspect a net once for all tests."""
    model, example = fresh(name)
    before = snapshot(model)
    partition = trainonce.inspect(model, example, streams=GRAPHS[name].streams)
    return Inspected(partition=partition, before=before, after=snapshot(model))


def masks_of(partition: trainonce.Partition, plan: trainonce.Plan) -> dict[str, Tensor]:
    """The plan as one mask of zeros and ones per group."""
    masks = {}
    for group in partition.groups:
        mask = torch.ones(group.num_channels, dtype=torch.double)
        if group.name in plan.kept:
            mask.zero_()
            mask[list(plan.kept[group.name])] = 1
        masks[group.name] = mask
    return masks
