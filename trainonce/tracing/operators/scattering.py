"""Rules for operators that pick or place entries by index: gather, scatter, indexed sums and assignments.

Along the axes that the index does not run over, data and target are aligned; the others are kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.tracing.operators.registry import Call, Layers, aten, rule
from trainonce.tracing.state.labels import Layer


@rule(aten.gather)
def gathered(call: Call) -> Layers:
    """Entries picked along one axis; along the others data and index are aligned."""
    data, index = call.args[0], call.args[2]
    axis = call.args[1] % max(data.dim(), 1)
    return _aligned(call, [data], [index], [axis])


@rule(
    aten.scatter_add,
    aten.scatter_add_,
    aten.scatter.src,
    aten.scatter_.src,
    aten.scatter.value,
    aten.scatter_.value,
    aten.scatter_reduce.two,
    aten.scatter_reduce_.two,
)
def scattered(call: Call) -> Layers:
    """Entries placed along one axis of a target; along the others target, index and source are aligned."""
    target, index, source = call.args[0], call.args[2], call.args[3]
    axis = call.args[1] % max(target.dim(), 1)
    if not isinstance(source, Tensor):
        layers = _aligned(call, [target], [index], [axis])
        return layers if source == 0 else tuple(layer.not_silent() for layer in layers)
    return _aligned(call, [target, source], [index], [axis])


@rule(aten.index_add, aten.index_add_, aten.index_copy, aten.index_copy_, aten.index_reduce)
def summed_at(call: Call) -> Layers:
    """Slices added or copied to places of one axis; along the others target and source are aligned."""
    target, source = call.args[0], call.args[3]
    return _aligned(call, [target, source], [], [call.args[1] % max(target.dim(), 1)])


@rule(aten.index_fill, aten.index_fill_)
def filled_at(call: Call) -> Layers:
    """Places of one axis get a constant."""
    target, value = call.args[0], call.args[3]
    layers = _aligned(call, [target], [], [call.args[1] % max(target.dim(), 1)])
    return layers if _is_zero(call, value) else tuple(layer.not_silent() for layer in layers)


@rule(aten.index_put, aten.index_put_, aten._unsafe_index_put, aten._index_put_impl_)
def assigned_at(call: Call) -> Layers:
    """`target[indices] = values`: along the axes that no index runs over both are aligned."""
    target, indices, values = call.args[0], call.args[1], call.args[2]
    place = axes_after_indexing(target, indices)
    reason = f"{call.words} in {call.where} places it by data"
    if place is None:
        call.keep((*call.layers(target), *call.layers(values)), reason)
        return ()
    layers = call.tie_along(
        call.layers(target), [axis for axis in range(target.dim()) if axis not in place], reason
    )
    free = {there: axis for axis, there in place.items()}
    num_axes = indexed_dim(target, indices)
    sources = []
    for layer in call.layers(values):
        offset = num_axes - values.dim()
        picked = [axis for axis in layer.varying if axis + offset not in free]
        tied = call.book.tie_along(layer, picked, reason)
        if tied is None:
            continue
        (axis,) = tied.varying if len(tied.varying) == 1 else (None,)
        if axis is None or values.shape[axis] != target.shape[free[axis + offset]]:
            call.keep([tied], reason)
            continue
        shape = [-1 if other == free[axis + offset] else 1 for other in range(target.dim())]
        sources.append(tied.with_ids(tied.ids.reshape(shape)))
    full = {
        axis
        for axis, there in place.items()
        if (own := there - (num_axes - values.dim())) >= 0 and values.shape[own] > 1
    }
    return _met(call, list(layers), sources, full, reason, is_silent=_is_zero(call, values))


@rule(aten.masked_scatter, aten.masked_scatter_)
def scattered_by_mask(call: Call) -> Layers:
    """Rows of the source take the places that a mask marks, if the mask is the same for all channels."""
    target, mask, source = call.args[:3]
    last = target.dim() - 1
    reason = f"{call.words} in {call.where} places it by data"
    repeats = [layer for layer in call.layers(mask) if layer.is_repeat and layer.varying == (mask.dim() - 1,)]
    layers = call.tie_along(call.layers(target), range(last), reason)
    sources = call.tie_along(call.layers(source), range(source.dim() - 1), reason)
    if not repeats or mask.shape != target.shape or source.shape[-1] != target.shape[-1]:
        call.keep((*layers, *sources, *call.layers(mask)), reason)
        return ()
    for layer in layers:
        call.book.tie(layer.ids.flatten(), repeats[0].ids.flatten(), reason)
    shape = [1] * last + [-1]
    return _met(
        call, list(layers), [layer.with_ids(layer.ids.reshape(shape)) for layer in sources], {last}, reason
    )


def axes_after_indexing(tensor: Tensor, indices: list[Tensor | None]) -> dict[int, int] | None:
    """Where the axes that no index runs over are in `tensor[indices]`; None if the indices stand apart."""
    consumed: list[tuple[int, bool]] = []
    for index in indices:
        width = index.dim() if index is not None and index.dtype in (torch.bool, torch.uint8) else 1
        consumed += [(len(consumed) + step, index is not None) for step in range(width)]
    taken = [axis for axis, is_taken in consumed if is_taken]
    if not taken:
        return {axis: axis for axis in range(tensor.dim())}
    if taken != list(range(taken[0], taken[-1] + 1)):
        return None
    shift = _num_index_axes(indices) - len(taken)
    return {
        axis: axis if axis < taken[0] else axis + shift for axis in range(tensor.dim()) if axis not in taken
    }


def indexed_dim(tensor: Tensor, indices: list[Tensor | None]) -> int:
    """The number of axes of `tensor[indices]`."""
    taken = sum(
        index.dim() if index.dtype in (torch.bool, torch.uint8) else 1
        for index in indices
        if index is not None
    )
    return tensor.dim() - taken + _num_index_axes(indices)


def _num_index_axes(indices: list[Tensor | None]) -> int:
    return max(
        (
            1 if index.dtype in (torch.bool, torch.uint8) else index.dim()
            for index in indices
            if index is not None
        ),
        default=0,
    )


def _aligned(call: Call, tensors: list[Tensor], indices: list[Tensor], axes: list[int]) -> Layers:
    """The labels that all tensors share along the axes that the operator does not run over.

    The first is what the operator gives back; an index says how far it reads along each axis.
    """
    reason = f"{call.words} in {call.where} picks from it by data"
    parts = [*tensors, *indices]
    free = [axis for axis in range(parts[0].dim()) if axis not in axes]
    if any(tensor.dim() != parts[0].dim() for tensor in parts):
        call.keep([layer for tensor in parts for layer in call.layers(tensor)], reason)
        return ()
    uneven = {axis for axis in free if len({tensor.shape[axis] for tensor in parts}) > 1}
    found = [list(call.tie_along(call.layers(tensor), [*axes, *uneven], reason)) for tensor in parts]
    full = {axis for axis in free if axis not in uneven and parts[0].shape[axis] > 1}
    layers = found[0]
    for number, others in enumerate(found[1:], start=1):
        # An index is no content: what it says does not depend on whether channels are silent.
        layers = list(_met(call, layers, others, full, reason, is_content=number < len(tensors)))
    return tuple(layers)


def _met(
    call: Call,
    layers: list[Layer],
    others: list[Layer],
    full: set[int],
    reason: str,
    *,
    is_content: bool = True,
    is_silent: bool = False,
) -> Layers:
    """Layers tied to those of another tensor; kept along `full` axes on which only one of both has labels."""
    results: list[Layer] = []
    covered = {axis for other in others for axis in other.varying}
    for layer in layers:
        bare = [axis for axis in layer.varying if axis in full and axis not in covered]
        current = call.book.tie_along(layer, bare, reason) if bare else layer
        if current is None:
            continue
        partners = [other for other in others if set(other.varying) & set(current.varying)]
        silent = current.ids > 0
        for partner in partners:
            call.book.tie(current.ids, partner.ids, reason)
            silent = silent & (partner.ids > 0) if is_content else silent
        if is_content and not partners and not is_silent:
            silent = torch.zeros_like(silent)
        ids = call.book.roots(current.ids).abs()
        results.append(Layer(torch.where(silent, ids, -ids)))
    mine = {axis for layer in layers for axis in layer.varying}
    call.keep([other for other in others if not set(other.varying) & mine], reason)
    return tuple(results)


def _is_zero(call: Call, value: Tensor | float) -> bool:
    """Whether it is a constant that is known to be zero."""
    if isinstance(value, Tensor):
        is_known = call.value(value) is None and value.numel() == 1 and not value.is_meta
        return is_known and bool(value == 0)
    return value == 0
