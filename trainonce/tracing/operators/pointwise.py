"""The rule for operators that work on single elements.

Labels that meet are tied. Whether a silent channel stays silent is found by trying the operator on zeros.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from trainonce.tracing.operators.registry import Call, Layers, aten, rule
from trainonce.tracing.state.labels import MOST_SPREAD_LABELS, Layer, align


# Older torch does not tag these as pointwise.
@rule(aten._prelu_kernel, aten.hardswish, aten.hardswish_, aten.leaky_relu, aten.leaky_relu_)
def pointwise(call: Call) -> Layers:
    """Labels that meet are tied; whether zero stays zero is found by trying the operator on zeros."""
    operands = call.tensors
    num_axes = max((tensor.dim() for tensor in operands), default=0)
    extents = [(1,) * (num_axes - tensor.dim()) + tuple(tensor.shape) for tensor in operands]
    aligned = [
        [align(_still_varying(call, layer), num_axes) for layer in call.layers(tensor)] for tensor in operands
    ]
    if not all(value is None or value.is_weight for value in map(call.value, operands)):
        aligned = _without_strange_tables(aligned)
    aligned = _without_wide(call, aligned)
    aligned = _one_axis_of_each_grid(call, aligned)
    aligned = [_meet(call, number, extents, aligned) for number in range(len(operands))]
    clusters: list[dict[int, Layer]] = []
    for number, layers in enumerate(aligned):
        for layer in layers:
            home = next(
                (cluster for cluster in clusters if number not in cluster and _overlap(cluster, layer)), None
            )
            if home is None:
                clusters.append({number: layer})
            else:
                home[number] = layer
    return tuple(_merge(call, cluster, operands) for cluster in clusters)


def _still_varying(call: Call, layer: Layer) -> Layer:
    """The layer without axes along which it has been tied since: a norm per head leaves heads alone."""
    return layer.with_ids(call.book.compress(layer.ids)) if len(layer.varying) > 1 else layer


def _without_strange_tables(aligned: list[list[Layer]]) -> list[list[Layer]]:
    """Leave out tables that meet data which varies along other axes (heads and dims under a rotation)."""
    data = {layer.varying for layers in aligned for layer in layers if not layer.is_table}
    return [[layer for layer in layers if not layer.is_table or layer.varying in data] for layers in aligned]


def _without_wide(call: Call, aligned: list[list[Layer]]) -> list[list[Layer]]:
    """Keep and leave out labels that would spread over too many elements where they meet."""
    wide: set[int] = set()
    for layers, partners in itertools.combinations(aligned, 2):
        for layer, partner in itertools.product(layers, partners):
            shared = set(layer.varying) & set(partner.varying)
            spread = torch.broadcast_shapes(layer.ids.shape, partner.ids.shape) if shared else ()
            if math.prod(spread) > MOST_SPREAD_LABELS and len(set(layer.varying) | set(partner.varying)) > 1:
                call.keep((layer, partner), f"{call.words} in {call.where} mixes it with other axes")
                wide |= {id(layer), id(partner)}
    return [[layer for layer in layers if id(layer) not in wide] for layers in aligned] if wide else aligned


def _one_axis_of_each_grid(call: Call, aligned: list[list[Layer]]) -> list[list[Layer]]:
    """Where a grid of labels (heads and dims) meets a tensor with labels for each of its axes: one of them.

    Tied to both, all of the grid would be one label. The first axis along which it varies is cut; the labels
    of the others are kept.
    """
    reason = f"{call.words} in {call.where} pairs it with a tensor that can only lose slices of another axis"
    left = [list(layers) for layers in aligned]
    for number, layers in enumerate(aligned):
        for grid in (layer for layer in layers if len(layer.varying) > 1):
            for other in (found for place, found in enumerate(left) if place != number):
                met = [layer for layer in other if set(layer.varying) < set(grid.varying)]
                chosen = _first_that_varies(call, grid, met) if len(met) > 1 else None
                for layer in met:
                    if chosen is not None and not set(layer.varying) & set(chosen.varying):
                        call.keep([layer], reason)
                        other.remove(layer)
    return left


def _first_that_varies(call: Call, grid: Layer, met: list[Layer]) -> Layer | None:
    """The first of some layers along whose axes the labels of the grid are not tied yet."""
    free = call.book.compress(grid.ids)
    return next((layer for layer in met if any(free.shape[axis] > 1 for axis in layer.varying)), None)


def _overlap(cluster: dict[int, Layer], layer: Layer) -> bool:
    return any(set(other.varying) & set(layer.varying) for other in cluster.values())


def _meet(call: Call, number: int, extents: list[tuple[int, ...]], aligned: list[list[Layer]]) -> list[Layer]:
    """The layers of one operand, tied to the others' and kept along axes that others fill without labels."""
    reason = f"{call.words} in {call.where} combines it with a tensor whose channels can't be cut"
    met: list[Layer] = []
    for layer in aligned[number]:
        current: Layer | None = layer
        for other, extent in enumerate(extents):
            if other == number or current is None:
                continue
            full = [axis for axis in current.varying if extent[axis] > 1]
            partners = [partner for partner in aligned[other] if set(partner.varying) & set(full)]
            covered = {axis for partner in partners for axis in partner.varying}
            current = (
                call.book.tie_along(current, [axis for axis in full if axis not in covered], reason)
                if full
                else current
            )
            if current is not None:
                for partner in partners:
                    call.book.tie(current.ids, partner.ids, reason)
        if current is not None:
            met.append(current)
    return met


def _merge(call: Call, cluster: dict[int, Layer], operands: list[Tensor]) -> Layer:
    shape = torch.broadcast_shapes(*(layer.ids.shape for layer in cluster.values()))
    roots = torch.stack([call.book.roots(layer.ids).abs().expand(shape) for layer in cluster.values()]).amax(
        dim=0
    )
    silent = {number: (layer.ids > 0).expand(shape) for number, layer in cluster.items()}
    signs = torch.full(shape, -1)
    for pattern in itertools.product((True, False), repeat=len(cluster)):
        if not any(pattern):
            continue
        match = torch.ones(shape, dtype=torch.bool)
        for number, is_silent in zip(cluster, pattern, strict=True):
            match &= silent[number] if is_silent else ~silent[number]
        if bool(match.any()):
            zeroed = {number for number, is_silent in zip(cluster, pattern, strict=True) if is_silent}
            outcome = _outcome_at_zero(call, zeroed, operands)
            if outcome == 0:
                signs[match] = 1
            elif outcome != outcome:
                for number in zeroed:
                    call.tracer.recording.followers |= cluster[number].origins
    origins = frozenset().union(*(layer.origins for layer in cluster.values()))
    return Layer(roots * signs, origins)


def _outcome_at_zero(call: Call, zeroed: set[int], operands: list[Tensor]) -> float:
    """0 if the operator gives zero whenever the operands in `zeroed` are zero.

    NaN if it is undefined there; else 1.
    """
    trials = [[0.0] if number in zeroed else _trial_values(tensor) for number, tensor in enumerate(operands)]
    for numbers in itertools.product(*trials):
        outcome = _outcome(
            call, [_scalar(number, tensor) for number, tensor in zip(numbers, operands, strict=True)]
        )
        if bool(torch.isnan(outcome)):
            return float("nan")
        if outcome != 0:
            return 1.0
    return 0.0


def _outcome(call: Call, operands: list[Tensor]) -> Tensor:
    """The operator on other tensors, with the scalars that it was called with."""
    waiting = iter(operands)
    args, kwargs = tree_map_only(Tensor, lambda _: next(waiting), (tuple(call.args), call.kwargs))
    return call.operator(*args, **kwargs)


def _scalar(number: float, like: Tensor) -> Tensor:
    if like.is_complex():
        return torch.tensor(number, dtype=torch.complex128)
    return torch.tensor(number, dtype=torch.double if like.is_floating_point() else like.dtype)


def _trial_values(tensor: Tensor) -> list[float]:
    if tensor.dtype is torch.bool:
        return [0.0, 1.0]
    return [-1.3, 0.7, 2.0] if tensor.is_floating_point() else [0.0, 1.0, 2.0]
