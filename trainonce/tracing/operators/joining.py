"""Rules for operators that join tensors or pick from them: concatenation, indexing, embedding, copies."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.tracing.operators.movement import moved
from trainonce.tracing.operators.pointwise import pointwise
from trainonce.tracing.operators.registry import Call, Layers, aten, rule
from trainonce.tracing.operators.scattering import axes_after_indexing
from trainonce.tracing.state.labels import Layer


@rule(aten.cat, moves_data=True)
def concatenated(call: Call) -> Layers:
    """Labels side by side along the axis; along the other axes the pieces' labels are tied."""
    # Nothing beside something has no channels of its own: it has the sizes of what it was sliced from.
    tensors = [tensor for tensor in call.args[0] if tensor.numel() > 0 or call.layers(tensor)]
    axis = call.argument("dim", 0) % call.result.dim()
    return _side_by_side(call, axis, [(tensor.shape[axis], list(call.layers(tensor))) for tensor in tensors])


@rule(aten.stack, moves_data=True)
def stacked(call: Call) -> Layers:
    """Labels side by side along a new axis."""
    axis = call.argument("dim", 0) % call.result.dim()
    pieces = [
        (1, [layer.with_ids(layer.ids.unsqueeze(axis)) for layer in call.layers(tensor)])
        for tensor in call.args[0]
    ]
    return _side_by_side(call, axis, pieces)


def _side_by_side(call: Call, axis: int, pieces: list[tuple[int, list[Layer]]]) -> Layers:
    reason = f"{call.words} in {call.where} puts it beside a tensor whose channels can't be cut"
    pieces = [(length, _as_coarse_as_others(call, axis, layers, pieces, reason)) for length, layers in pieces]
    patterns = {frozenset(layer.varying) - {axis} for _, layers in pieces for layer in layers}
    results = []
    for pattern in sorted(patterns, key=sorted):
        matching = [
            next((layer for layer in layers if frozenset(layer.varying) - {axis} == pattern), None)
            for _, layers in pieces
        ]
        present = [layer for layer in matching if layer is not None]
        if pattern and (len(present) < len(pieces) or not any(axis in layer.varying for layer in present)):
            tied = _tied_pieces(call, matching, reason)
            results += [tied] if tied is not None else []
            continue
        shape = list(torch.broadcast_shapes(*(layer.ids.narrow(axis, 0, 1).shape for layer in present)))
        blocks = []
        for (length, _), layer in zip(pieces, matching, strict=True):
            shape[axis] = length
            blocks.append(torch.zeros(shape, dtype=torch.long) if layer is None else layer.ids.expand(shape))
        origins = frozenset().union(*(layer.origins for layer in present))
        is_table = all(layer.is_table for layer in present)
        results.append(Layer(call.book.compress(torch.cat(blocks, dim=axis)), origins, is_table=is_table))
    return tuple(layer for layer in results if layer.ids.numel() > 1)


def _as_coarse_as_others(
    call: Call, axis: int, layers: list[Layer], pieces: list[tuple[int, list[Layer]]], reason: str
) -> list[Layer]:
    """Labels of heads and dims beside a piece that has them for heads alone: rotated tokens and others."""
    results: list[Layer] = []
    for layer in layers:
        pattern = frozenset(layer.varying) - {axis}
        for _, others in pieces:
            patterns = [frozenset(other.varying) - {axis} for other in others]
            coarser = [other for other in patterns if other and other < pattern]
            if pattern not in patterns and coarser:
                pattern = max(coarser, key=len)
        extra = [place for place in layer.varying if place != axis and place not in pattern]
        tied = call.book.tie_along(layer, extra, reason) if extra else layer
        results += [tied] if tied is not None else []
    return results


def _tied_pieces(call: Call, matching: list[Layer | None], reason: str) -> Layer | None:
    present = [layer for layer in matching if layer is not None]
    if len(present) < len(matching):
        for layer in present:
            call.book.tie_along(layer, layer.varying, reason)
        return None
    for layer in present[1:]:
        call.book.tie(present[0].ids, layer.ids, reason)
    silent = torch.stack([(layer.ids > 0).expand(present[0].ids.shape) for layer in present]).all(dim=0)
    ids = call.book.roots(present[0].ids).abs()
    origins = frozenset().union(*(layer.origins for layer in present))
    return Layer(torch.where(silent, ids, -ids), origins, is_table=all(layer.is_table for layer in present))


@rule(aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_select, moves_data=True)
def indexed(call: Call) -> Layers:
    """Labels picked by constant indices; indices that depend on data keep the axes they pick from."""
    tensor = call.args[0]
    if call.name == "index_select":
        axis = call.args[1] % tensor.dim()
        indices: list[Tensor | None] = [None] * axis + [call.args[2]]
    else:
        indices = list(call.args[1])
    constant = all(
        index is None or (call.value(index) is None and index.device.type != "meta") for index in indices
    )
    reason = f"{call.words} in {call.where} picks from it by data"
    by_mask = any(index is not None and index.dtype is torch.bool for index in indices)
    layers = call.layers(tensor)
    picked = [axis for axis, index in enumerate(indices) if index is not None]
    if by_mask:
        return _beside_mask(call, tensor, indices, reason)
    if not constant:
        layers = call.tie_along(layers, picked, reason)

    def move(ids: Tensor) -> Tensor:
        own = tuple(
            slice(None)
            if index is None
            else index
            if ids.shape[axis] > 1
            else torch.zeros(index.shape, dtype=torch.long)
            for axis, index in enumerate(indices)
        )
        return call.book.compress(ids[own])

    return moved(layers, move)


def _beside_mask(call: Call, tensor: Tensor, indices: list[Tensor | None], reason: str) -> Layers:
    """A mask picks by data along its own axes; the others pass."""
    place = axes_after_indexing(tensor, indices)
    if place is None:
        call.keep(call.layers(tensor), reason)
        return ()
    picked = [axis for axis in range(tensor.dim()) if axis not in place]
    sizes = [1] * call.result.dim()

    def move(ids: Tensor) -> Tensor:
        shape = list(sizes)
        for axis, there in place.items():
            shape[there] = ids.shape[axis]
        return ids.reshape(shape)

    return moved(call.tie_along(call.layers(tensor), picked, reason), move)


@rule(aten.embedding)
def embedded(call: Call) -> Layers:
    """Rows are looked up by data and kept; the columns become the last axis."""
    weight, indices = call.args[0], call.args[1]
    across = [layer for layer in call.layers(weight) if layer.varying == (0,)]
    call.keep(across, f"the embedding in {call.where} looks it up by index")
    columns = [layer for layer in call.layers(weight) if layer.varying == (1,)]
    return tuple(layer.with_ids(layer.ids.reshape((1,) * indices.dim() + (-1,))) for layer in columns)


@rule(aten._embedding_bag, aten._embedding_bag_forward_only)
def bagged(call: Call) -> list[Layers]:
    """Sums, means or maxima of rows: looked up by data and kept; the columns pass."""
    weight = call.args[0]
    call.keep(
        [layer for layer in call.layers(weight) if layer.varying != (1,)],
        f"the embedding in {call.where} looks it up by index",
    )
    columns = tuple(layer for layer in call.layers(weight) if layer.varying == (1,))
    return [columns, *([()] * (len(call.result) - 1))]


@rule(aten._pack_padded_sequence)
def packed(call: Call) -> list[Layers]:
    """Batch and time become one axis, in an order that depends on data; the others pass."""
    reason = f"{call.words} in {call.where} puts it into one row with another axis"
    layers = call.tie_along(call.layers(call.args[0]), (0, 1), reason)
    return [moved(layers, lambda ids: ids.squeeze(1)), ()]


@rule(aten._pad_packed_sequence)
def padded_again(call: Call) -> list[Layers]:
    """One axis becomes batch and time; what is filled up is silent if it is filled with zeros."""
    layers = call.tie_along(
        call.layers(call.args[0]), (0,), f"{call.words} in {call.where} takes it apart by data"
    )
    layers = moved(layers, lambda ids: ids.unsqueeze(0))
    is_zero = call.argument("padding_value") == 0
    return [layers if is_zero else tuple(layer.not_silent() for layer in layers), ()]


@rule(aten.empty_like, aten.ones_like, aten.rand_like, aten.randn_like, aten.full_like, aten.zeros_like)
def made_like(call: Call) -> Layers:
    """A tensor made in the shape of another is aligned with it, but silent only if it is zero."""
    layers = call.layers(call.args[0])
    return tuple(
        Layer(layer.ids.abs()) if call.name == "zeros_like" else Layer(-layer.ids.abs()) for layer in layers
    )


@rule(aten.new_empty, aten.new_full, aten.new_ones, aten.new_zeros)
def made_apart(call: Call) -> Layers:
    """A tensor made with sizes of its own takes only type and device from another.

    Where a size comes from a channel count, the watcher of calls ties the two.
    """
    return ()


@rule(aten.bernoulli.default, aten.bernoulli.p, aten.poisson, aten.rrelu_with_noise)
def drawn(call: Call) -> Layers:
    """Chances drawn for each entry: aligned, but not silent."""
    return tuple(layer.not_silent() for layer in call.layers(call.args[0]))


@rule(aten.bernoulli_, aten.uniform_, aten.normal_, aten.fill_, aten.random_, aten.exponential_)
def overwritten(call: Call) -> Layers:
    """New content in the old place is aligned, but not silent."""
    return tuple(layer.not_silent() for layer in call.layers(call.args[0]))


@rule(aten.zero_)
def zeroed(call: Call) -> Layers:
    """Zeros are silent."""
    return tuple(layer.with_ids(layer.ids.abs()) for layer in call.layers(call.args[0]))


@rule(aten.copy_)
def copied(call: Call) -> Layers:
    """The target takes the source's labels; where it had labels of its own they are tied."""
    target, source = call.args[0], call.args[1]
    if (
        not call.layers(target)
        and target.numel() * target.element_size() == target.untyped_storage().nbytes()
        and target.shape == source.shape
    ):
        return call.layers(source)
    return pointwise(call)
