"""Rules for operators that look at several positions at once: norms, reductions, softmax, pooling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainonce.tracing.operators.registry import (
    Call,
    Layers,
    aten,
    rule,
    tensors_in,
)
from trainonce.tracing.state.labels import Layer


@rule(
    aten.native_batch_norm,
    aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_no_training,
    aten._batch_norm_with_update,
    aten._batch_norm_no_update,
    aten.cudnn_batch_norm,
    aten.miopen_batch_norm,
    sees_labels_alone=True,
)
def batch_norm(call: Call) -> list[Layers]:
    """Channels are tied to the norm's own vectors; its weight and bias silence them whatever comes in."""
    data, weight, bias = call.args[0], call.args[1], call.args[2]
    statistics = [tensor for tensor in call.args[3:5] if isinstance(tensor, Tensor)]
    reason = f"batch norm in {call.where} takes its mean and variance over it"
    others = [axis for axis in range(data.dim()) if axis != 1]
    layers = call.tie_along(call.layers(data), others, reason)
    vectors = [
        _on_channels(call, tensor, data.dim())
        for tensor in (weight, bias, *statistics)
        if isinstance(tensor, Tensor)
    ]
    if not layers or any(vector is None for vector in vectors):
        lone = f"batch norm in {call.where} normalizes channels that can't be cut"
        call.keep([*layers, *(vector for vector in vectors if vector is not None)], lone)
        return _first(call, ())
    result = layers[0]
    for other in [*layers[1:], *vectors]:
        call.book.tie(result.ids, other.ids, reason)
    ids = call.book.roots(result.ids).abs()
    affine = isinstance(weight, Tensor) and isinstance(bias, Tensor)
    # Without running statistics (instance norm) a zero channel has mean 0 and stays zero.
    stays_zero = not statistics and bool((result.ids > 0).all())
    if not affine and not stays_zero:
        ids = -ids
    for tensor in (weight, bias):
        call.tracer.recording.writers |= frozenset().union(*(layer.origins for layer in call.layers(tensor)))
    call.tracer.recording.followers |= frozenset().union(
        *(layer.origins for tensor in statistics for layer in call.layers(tensor))
    )
    return _first(call, (Layer(ids),))


def _on_channels(call: Call, vector: Tensor, num_axes: int) -> Layer | None:
    layers = [layer for layer in call.layers(vector) if layer.varying == (0,)]
    if not layers:
        return None
    return layers[0].with_ids(layers[0].ids.reshape([1, -1] + [1] * (num_axes - 2)))


def _first(call: Call, layers: Layers) -> list[Layers]:
    count = len(tensors_in(call.result))
    return [layers, *([()] * (count - 1))]


@rule(aten.native_layer_norm, "aten::_fused_rms_norm")
def layer_norm(call: Call) -> list[Layers]:
    """The normalized axes are kept: their mean and variance would see the zeros. The others pass."""
    data, normalized = call.args[0], len(call.args[1])
    if call.name == "_fused_rms_norm" and normalized == 1 and call.tracer.in_norm:
        words = f"RMSNorm in {call.where} looks at all of it at once"
        return _norm_of_streams(call, data, call.args[2:3], words)
    axes = range(data.dim() - normalized, data.dim())
    reason = f"LayerNorm in {call.where} takes its mean and variance over it"
    if normalized == 1 and call.name == "native_layer_norm" and call.tracer.in_swap:
        if call.tracer.recording.cuts_streams:
            return _norm_of_streams(call, data, call.args[2:4], reason)
        reason += ", streams=True can cut it"
    layers = call.tie_along(call.layers(data), axes, reason)
    vectors = [tensor for tensor in call.args[2:4] if isinstance(tensor, Tensor)]
    for tensor in vectors:
        call.keep(call.layers(tensor), reason)
    has_bias = call.name == "native_layer_norm" and isinstance(call.argument("bias"), Tensor)
    return _first(call, tuple(layer.not_silent() if has_bias else layer for layer in layers))


def _norm_of_streams(call: Call, data: Tensor, vectors: Sequence[Any], reason: str) -> list[Layers]:
    """Channels are tied to weight and bias; a silent one adds nothing to the mean.

    After a cut the norm is scaled, or divides by as many channels as before.
    """
    last = data.dim() - 1
    found = [
        [layer for layer in call.layers(vector) if layer.varying == (0,)]
        for vector in vectors
        if isinstance(vector, Tensor)
    ]
    own = [layer for layers in found for layer in layers]
    is_whole = bool(found) and all(found)
    results: list[Layer] = []
    covered = False
    for layer in call.layers(data):
        if layer.varying != (last,) or not is_whole:
            results += call.tie_along([layer], [last], reason) if last in layer.varying else [layer]
            continue
        covered = True
        call.book.keep(layer.ids[layer.ids < 0], reason)
        for vector in own:
            call.book.tie(layer.ids.flatten(), vector.ids, reason)
        origins = layer.origins.union(*(vector.origins for vector in own))
        results.append(Layer(call.book.roots(layer.ids).abs(), origins))
    if not covered:
        call.keep(own, reason)
        if len(found) > 1:
            results = [layer.not_silent() for layer in results]
    return _first(call, tuple(results))


@rule(aten.native_group_norm)
def group_norm(call: Call) -> list[Layers]:
    """Whole groups may go: the labels within one are tied."""
    data, weight, bias, groups = call.args[0], call.args[1], call.args[2], call.args[6]
    reason = f"GroupNorm in {call.where} takes its mean and variance over it"
    layers = call.tie_along(call.layers(data), [axis for axis in range(data.dim()) if axis != 1], reason)
    vectors = [
        _on_channels(call, tensor, data.dim()) for tensor in (weight, bias) if isinstance(tensor, Tensor)
    ]
    channels = data.shape[1]
    known = [vector for vector in vectors if vector is not None]
    if not layers or groups < 2 or len(known) < len(vectors):
        call.keep([*layers, *known], reason)
        return _first(call, ())
    layer = layers[0]
    for vector in known:
        call.book.tie(layer.ids, vector.ids, reason)
    rows = layer.ids.reshape(groups, channels // groups)
    call.book.tie(rows, rows[:, :1], reason)
    ids = call.book.roots(layer.ids).abs()
    call.tracer.note_demand("num_groups", 1, Layer(call.book.roots(rows[:, 0]).abs()))
    for tensor in (weight, bias):
        call.tracer.recording.writers |= frozenset().union(*(part.origins for part in call.layers(tensor)))
    return _first(call, (Layer(torch.where(layer.ids > 0, ids, -ids)),))


@rule(aten._weight_norm_interface)
def weight_norm(call: Call) -> list[Layers]:
    """`g * v / |v|`: the scale silences, the direction follows; what the norm runs over is kept."""
    direction, scale, axis = call.args[0], call.args[1], call.argument("dim", 0)
    reason = f"weight_norm in {call.where} takes the norm over it"
    others = [other for other in range(direction.dim()) if other != axis]
    layers = call.tie_along(call.layers(direction), others, reason)
    scales = call.layers(scale)
    if not layers or not scales:
        call.keep([*layers, *scales], reason)
        return _first(call, ())
    call.book.tie(layers[0].ids, scales[0].ids, reason)
    call.tracer.recording.followers |= layers[0].origins
    return _first(call, (Layer(call.book.roots(scales[0].ids).abs(), scales[0].origins),))


_SPATIAL = re.compile(r"(adaptive_)?(avg|max)_pool|upsample_|grid_sampler|reflection_pad|replication_pad")


def _spatial_operators() -> list[Any]:
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    bare = {name.removeprefix("aten::").split(".")[0] for name in names}
    return [getattr(aten, name) for name in sorted(bare) if _SPATIAL.search(name) and "backward" not in name]


@rule(*_spatial_operators())
def spatial(call: Call) -> list[Layers]:
    """Pooling, resizing and padding by reflection treat channels one by one; the spatial axes are kept."""
    data = call.args[0]
    found = re.search(r"([123])d", call.name)
    num_spatial = int(found.group(1)) if found else data.dim() - 2
    axes = range(data.dim() - num_spatial, data.dim())
    for other in call.tensors[1:]:
        call.keep(call.layers(other), f"{call.words} in {call.where} samples by it")
    layers = call.tie_along(call.layers(data), axes, f"{call.words} in {call.where} mixes its positions")
    count = len(tensors_in(call.result))
    return [layers] * count


@rule("torchvision::roi_align", "torchvision::roi_pool")
def regions(call: Call) -> list[Layers]:
    """Regions cut out of feature maps: channels pass, images and positions are picked by data."""
    data, boxes = call.args[0], call.args[1]
    call.keep(call.layers(boxes), f"{call.words} in {call.where} samples by it")
    layers = call.tie_along(
        call.layers(data), (0, 2, 3), f"{call.words} in {call.where} picks from it by data"
    )
    return [layers] * len(tensors_in(call.result))


@rule(aten.native_dropout, aten._fused_dropout)
def dropout(call: Call) -> list[Layers]:
    """Dropout keeps zeros; its mask is aligned but not silent."""
    layers = call.layers(call.args[0])
    return [layers, tuple(layer.not_silent() for layer in layers)]


@rule(aten.glu)
def gated_linear_unit(call: Call) -> Layers:
    """`a * sigmoid(b)` of two halves: tied one to one, silent with `a`."""
    data, axis = call.args[0], call.argument("dim", -1) % call.args[0].dim()
    half = data.shape[axis] // 2
    results = []
    for layer in call.layers(data):
        if axis in layer.varying:
            first, second = layer.ids.narrow(axis, 0, half), layer.ids.narrow(axis, half, half)
            call.book.tie(first, second, f"glu in {call.where} pairs it with channels that can't be cut")
            layer = layer.with_ids(first)
        results.append(layer)
    return tuple(results)
