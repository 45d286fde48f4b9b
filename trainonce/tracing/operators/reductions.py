"""Rules for operators that sum, average or search along axes, and for those that look along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trainonce.tracing.operators.registry import Call, Layers, aten, rule, tensors_in
from trainonce.tracing.state.labels import Layer

SUMS = {"sum", "linalg_vector_norm", "norm"}
"""Reductions to which a zero contributes nothing, so that a silent channel may leave.

In a norm that is scaled when it is cut, the mean is one of them.
"""


@rule(
    aten.sum,
    aten.mean,
    aten.amax,
    aten.amin,
    aten.max.dim,
    aten.min.dim,
    aten.max.default,
    aten.min.default,
    aten.var,
    aten.std,
    aten.var_mean,
    aten.std_mean,
    aten.linalg_vector_norm,
    aten.norm,
    aten.logsumexp,
    aten.any,
    aten.all,
    aten.argmax,
    aten.argmin,
    aten.prod,
    aten.median,
    aten.aminmax,
)
def reduction(call: Call) -> list[Layers]:
    """Axes that are reduced consume silent labels if zero adds nothing (sums), else keep them.

    The others pass.
    """
    data = call.args[0]
    axes = _reduced_axes(call, data.dim())
    keepdim = bool(call.argument("keepdim", False))
    reason = f"{call.words} in {call.where} looks at all of it at once"
    value = call.value(data)
    passed = []
    for layer in call.layers(data):
        inner = [axis for axis in layer.varying if axis in axes]
        if not inner:
            passed.append(layer)
        elif len(inner) < len(layer.varying):
            passed += call.tie_along([layer], inner, reason)
        elif value is None or value.is_weight or not _adds_nothing(call):
            call.keep([layer], reason)
        else:
            call.book.keep(layer.ids[layer.ids < 0], reason)
    stays_zero = _gives_zero(call, axes)
    results = []
    for layer in passed:
        ids = layer.ids if keepdim else layer.ids.squeeze(tuple(axes))
        results.append(Layer(ids if stays_zero else -ids.abs(), layer.origins))
    return [tuple(results)] * len(tensors_in(call.result))


def _adds_nothing(call: Call) -> bool:
    order = call.argument("ord", call.argument("p", 2))
    if call.name == "mean":
        return call.tracer.in_norm
    return call.name == "sum" or (
        call.name in SUMS and isinstance(order, int | float) and 0 < order < float("inf")
    )


def _reduced_axes(call: Call, num_axes: int) -> Sequence[int]:
    dim = call.argument("dim")
    if dim is None or dim == []:
        return range(num_axes)
    return [axis % num_axes for axis in ([dim] if isinstance(dim, int) else dim)]


def _gives_zero(call: Call, axes: Any) -> bool:
    zeros = torch.zeros([2 if axis in axes else 1 for axis in range(call.args[0].dim())], dtype=torch.double)
    if not call.args[0].is_floating_point():
        zeros = zeros.to(call.args[0].dtype)
    result = call.operator(
        zeros, *call.args[1:], **{key: item for key, item in call.kwargs.items() if key != "dtype"}
    )
    return all(bool((tensor == 0).all()) for tensor in tensors_in(result))


@rule(
    aten._softmax,
    aten._log_softmax,
    aten._safe_softmax,
    aten.cumsum,
    aten.cumprod,
    aten.sort,
    aten.logcumsumexp,
    aten.topk,
    aten.cummax,
    aten.renorm,
)
def along_one_axis(call: Call) -> list[Layers]:
    """The axis is kept, the others pass, no longer silent."""
    data = call.args[0]
    axis = call.argument("dim", -1) % data.dim()
    layers = call.tie_along(
        call.layers(data), [axis], f"{call.words} in {call.where} looks at all of it at once"
    )
    count = len(tensors_in(call.result))
    return [tuple(layer.not_silent() for layer in layers)] * count
