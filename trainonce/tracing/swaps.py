"""Which modules of a model must compute in another way once they are cut: attention and LayerNorm of torch's.

A LayerNorm is taken for one if torch's over its last or second axis gives what it gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from trainonce.execution.attention import can_be_freed, free_heads
from trainonce.execution.comparison import relative_difference
from trainonce.execution.precision import InDouble
from trainonce.execution.straight_code import take_forward_back
from trainonce.execution.wide_norm import keep_divisor, kept_divisor
from trainonce.structure.swaps import ATTENTION, LAYER_NORM, Swap
from trainonce.tracing.norms import bare_copy
from trainonce.tracing.state.tracer import Tracer

_EXACT = 1e-9

_KNOWN: dict[Any, int | None] = {}
"""The axis of LayerNorms that were tried before, by what tells them apart."""


def find_swaps(model: nn.Module) -> dict[str, Swap]:
    """The modules that are swapped when they are cut, by name. The model does not run."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, Swap] = {}
    for path, module in model.named_modules():
        if can_be_freed(module):
            kind, axis = ATTENTION, 0
        elif (axis := _axis_of(module)) is not None:
            kind = LAYER_NORM
        else:
            continue
        tensors = tuple(dict.fromkeys(names[id(parameter)] for parameter in module.parameters()))
        found[path] = Swap(path, kind, axis, tensors)
    return found


def _axis_of(module: nn.Module) -> int | None:
    """The axis of its data that a LayerNorm runs over; None of other modules."""
    if not isinstance(module, nn.LayerNorm) or len(module.normalized_shape) != 1:
        return None
    own = set(module._parameters) - {"weight", "bias"}
    if own or not isinstance(module._parameters.get("weight"), Tensor) or any(module.children()):
        return None
    if kept_divisor(module) is None and "forward" in vars(module):
        return None
    mark = (type(module), module._parameters.get("bias") is None, str(module.extra_repr()))
    if mark not in _KNOWN:
        _KNOWN[mark] = _tried(module)
    return _KNOWN[mark]


def _tried(module: Any) -> int | None:
    size = module.weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), InDouble(), suppress(Exception):
        for shape, axis in (((2, 3, size), -1), ((2, 2, 3, size), -1), ((2, size, 3, 2), 1)):
            own: Any = bare_copy(module).eval()
            ours = bare_copy(module).eval()
            take_forward_back(own)
            own.normalized_shape = (size,)
            data = torch.randn(shape, generator=generator, dtype=torch.float64)
            with suppress(Exception):
                for parameter in own._parameters.values():
                    if parameter is not None:
                        # Not in place: a copy of float64 weights shares their memory.
                        parameter.data = torch.randn(size, generator=generator, dtype=torch.float64)
                vars(ours)["_parameters"] = own._parameters
                keep_divisor(ours, size, axis)
                wanted = own(data.clone())
                if wanted.shape == data.shape and relative_difference([wanted], [ours(data)]) <= _EXACT:
                    return axis
    return None


@contextmanager
def computing_openly(model: nn.Module, swaps: Mapping[str, Swap], tracer: Tracer) -> Iterator[None]:
    """Inside, attention computes as it will after a cut, and LayerNorms run over what they have.

    The caller puts attributes back.
    """
    for path, module in model.named_modules():
        if path not in swaps:
            continue
        if swaps[path].kind == ATTENTION:
            free_heads(module, average={False: _Apart(), True: _Averaged(tracer)})
        elif kept_divisor(module) is not None:
            take_forward_back(module)
            weight: Any = module._parameters["weight"]
            vars(module)["normalized_shape"] = tuple(weight.shape)
    yield


class _Apart:
    """The weights of every head."""

    def forward(self, weights: Tensor) -> Tensor:
        """Themselves."""
        return weights


class _Averaged:
    """The mean of attention's weights over heads: it keeps them only if somebody looks at it."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def forward(self, weights: Tensor) -> Tensor:
        """The mean; what reads it keeps the heads."""
        value = self.tracer.value(weights)
        with _disable_current_modes():
            mean = weights.mean(-3)
            if value is not None:
                where = self.tracer.where()
                self.tracer.delicate[mean] = (value.layers, f"the weights of {where} are averaged over heads")
            if weights in self.tracer.hollow:
                self.tracer.hollow[mean] = True
        return mean
