"""Rules for convolutions of any dimension: plain, transposed, grouped, depthwise.

A grouped convolution loses whole groups, or the same positions of every group, whichever gives the finer
units.
"""

from __future__ import annotations

import math

from torch import Tensor

from trainonce.tracing.operators.contraction import Operand, added, contract
from trainonce.tracing.operators.registry import Call, Layers, aten, rule
from trainonce.tracing.state.labels import KERNEL, Layer


@rule(aten.convolution, counts_cost=True)
def convolution(call: Call) -> Layers:
    """Convolutions of any dimension: plain, transposed, grouped, depthwise."""
    data, weight, bias = call.args[0], call.args[1], call.args[2]
    transposed, groups = call.args[6], call.args[8]
    spatial = range(2, data.dim())
    reason = f"a convolution in {call.where} slides along it"
    incoming = _flat(call.tie_along(call.layers(data), spatial, reason))
    kernel = _flat(_without_kernel(call, call.layers(weight), weight))
    positions = math.prod((data if transposed else call.result).shape[2:]) * math.prod(weight.shape[2:])
    value = call.value(weight)
    is_weight = value is None or value.is_weight
    if groups == 1:
        letters = "io" if transposed else "oi"
        sizes = {"n": data.shape[0]} | dict(zip(letters, weight.shape[:2], strict=True))
        operands = (Operand(incoming, "ni", is_weight=False), Operand(kernel, letters, is_weight=is_weight))
        layers = contract(call, operands, "no", sizes, coefficient=positions)
    else:
        layers = _grouped(call, incoming, kernel, positions, groups, transposed=transposed)
    layers = added(call, layers, bias, 2)
    return tuple(layer.with_ids(layer.ids.reshape(*layer.ids.shape, *[1] * len(spatial))) for layer in layers)


def _flat(layers: Layers) -> list[Layer]:
    return [layer.with_ids(layer.ids.reshape(layer.ids.shape[:2])) for layer in layers]


def _without_kernel(call: Call, layers: Layers, weight: Tensor) -> Layers:
    along_kernel = [layer for layer in layers if any(axis >= 2 for axis in layer.varying)]
    call.keep(along_kernel, KERNEL)
    return tuple(layer for layer in layers if layer not in along_kernel)


def _grouped(
    call: Call, incoming: list[Layer], kernel: list[Layer], positions: int, groups: int, *, transposed: bool
) -> Layers:
    data, weight = call.args[0], call.args[1]
    in_each, out_each = data.shape[1] // groups, call.result.shape[1] // groups
    whole = groups >= min(in_each, out_each)
    along_batch = [layer for layer in incoming if layer.varying != (1,)]
    call.keep(along_batch, f"a convolution in {call.where} reads it together with its batch")
    mine = [layer for layer in incoming if layer.varying == (1,)]
    # The weight's first axis runs over all groups, its second over the channels within one.
    outer = [layer for layer in kernel if layer.varying == (0,)]
    inner = [layer for layer in kernel if layer.varying == (1,)]
    sizes = {"n": data.shape[0], "o": weight.shape[0], "i": weight.shape[1]}
    reason = f"the grouped convolution in {call.where} pairs it with channels that can't be cut"
    if whole:
        return _whole_groups(
            call, mine, outer, inner, (groups, in_each, out_each), (sizes, positions), transposed, reason
        )
    for layers, each in ((mine, in_each), (outer, weight.shape[0] // groups)):
        for layer in layers:
            rows = layer.ids.reshape(groups, each)
            call.book.tie(rows, rows[:1], reason)
    first = [
        layer.with_ids(call.book.roots(layer.ids.reshape(groups, in_each)[:1]))
        for layer in mine
        if in_each > 1
    ]
    value = call.value(weight)
    is_weight = value is None or value.is_weight
    if in_each == 1:
        call.keep(mine, reason)
    if not transposed:
        operands = (Operand(first, "ni", is_weight=False), Operand(kernel, "oi", is_weight=is_weight))
        return contract(call, operands, "no", sizes, coefficient=positions)
    rows = [
        layer.with_ids(layer.ids.reshape(groups, in_each)[:1].reshape(-1, 1))
        for layer in outer
        if in_each > 1
    ]
    sizes = {"n": data.shape[0], "i": in_each, "o": out_each}
    operands = (Operand(first, "ni", is_weight=False), Operand([*rows, *inner], "io", is_weight=is_weight))
    layers = contract(call, operands, "no", sizes, coefficient=positions * groups)
    return tuple(layer.with_ids(layer.ids.repeat(1, groups)) for layer in layers)


def _whole_groups(
    call: Call,
    mine: list[Layer],
    outer: list[Layer],
    inner: list[Layer],
    each: tuple[int, int, int],
    cost: tuple[dict[str, int], int],
    transposed: bool,
    reason: str,
) -> Layers:
    groups, in_each, out_each = each
    call.keep(inner, f"it lies within a group of the grouped convolution in {call.where}")
    if not mine or not outer:
        call.keep([*mine, *outer], reason)
        call.tracer.note_product(cost[1], cost[0], ())
        return ()
    outer_each = in_each if transposed else out_each
    read, write = mine[0].ids.reshape(groups, in_each), outer[0].ids.reshape(groups, outer_each)
    call.book.tie(read, read[:, :1], reason)
    call.book.tie(write, write[:, :1], reason)
    call.book.tie(read[:, 0], write[:, 0], reason)
    silent = (read > 0).all(dim=1) | (write > 0).all(dim=1)
    per_group = call.book.roots(write[:, 0]).abs() * (silent.long() * 2 - 1)
    call.tracer.note_product(cost[1], cost[0], ((outer[0], "oi"),))
    call.tracer.note_demand("groups", 6, Layer(per_group))
    result = per_group.repeat_interleave(out_each).reshape(1, -1)
    call.tracer.recording.writers |= outer[0].origins
    return (Layer(result, outer[0].origins),)
