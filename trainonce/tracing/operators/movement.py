"""Rules for operators that move data: labels move exactly as the data does."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainonce.tracing.operators.registry import Call, Layers, aten, rule
from trainonce.tracing.state.labels import Layer, reshape_ids


def moved(layers: Layers, move: Callable[[Tensor], Tensor]) -> Layers:
    """Layers whose labels were moved; those that no longer vary are left out."""
    return tuple(layer.with_ids(ids) for layer in layers if (ids := move(layer.ids)).numel() > 1)


@rule(
    aten.alias,
    aten.detach,
    aten.clone,
    aten.contiguous,
    aten._to_copy,
    aten.lift_fresh,
    aten.lift_fresh_copy,
    aten.detach_,
    moves_data=True,
)
def same(call: Call) -> Layers:
    """The same labels."""
    return call.layers(call.args[0])


@rule(aten.view.default, aten._unsafe_view, aten.reshape, aten._reshape_alias, moves_data=True)
def reshaped(call: Call) -> Layers:
    """Labels in another shape."""
    old, new = tuple(call.args[0].shape), tuple(call.result.shape)
    if 0 in old:
        return ()
    layers = call.layers(call.args[0])
    if call.tracer.is_opaque:
        # Splitting or joining labelled axes here would need sizes that only the function knows.
        torn = [
            layer
            for layer in layers
            if reshape_ids(layer.ids, old, new).squeeze().dim() != 1
            or any(old[axis] not in new for axis in layer.varying)
        ]
        call.keep(
            torn, f"multi_head_attention_forward in {call.where} computes its head sizes from embed_dim"
        )
    results = moved(layers, lambda ids: call.book.compress(reshape_ids(ids, old, new)))
    firm = {axis for layer in results if not layer.is_repeat for axis in layer.varying}
    return tuple(layer for layer in results if not (layer.is_repeat and firm & set(layer.varying)))


@rule(aten.permute, aten.transpose.int, aten.t, aten.numpy_T, aten.movedim, moves_data=True)
def permuted(call: Call) -> Layers:
    """Labels with their axes in another order."""
    return moved(call.layers(call.args[0]), lambda ids: call.operator(ids, *call.args[1:], **call.kwargs))


@rule(aten.transpose_, aten.t_, moves_data=True)
def permuted_in_place(call: Call) -> Layers:
    """As `permuted`, on the tensor itself."""
    return moved(call.layers(call.args[0]), lambda ids: call.operator(ids.clone(), *call.args[1:]))


@rule(aten.unsqueeze, moves_data=True)
def unsqueezed(call: Call) -> Layers:
    """Labels with one axis more."""
    return moved(call.layers(call.args[0]), lambda ids: ids.unsqueeze(call.argument("dim")))


@rule(aten.squeeze, moves_data=True)
def squeezed(call: Call) -> Layers:
    """Labels without the axes that were squeezed."""
    shape = call.args[0].shape
    chosen = call.argument("dim")
    chosen = range(len(shape)) if chosen is None else [chosen] if isinstance(chosen, int) else chosen
    gone = {axis % len(shape) for axis in chosen if shape[axis] == 1} if len(shape) else set()
    return moved(call.layers(call.args[0]), lambda ids: ids.squeeze(tuple(gone)) if gone else ids)


@rule(aten.expand, moves_data=True)
def expanded(call: Call) -> Layers:
    """Axes made by expansion hold one thing many times.

    They get labels of their own, to be tied to what they meet.
    """
    old, new = call.args[0], call.result
    missing = new.dim() - old.dim()
    layers = moved(call.layers(old), lambda ids: ids.reshape((1,) * missing + tuple(ids.shape)))
    grown = [
        axis
        for axis, size in enumerate(new.shape)
        if size > 1 and (axis < missing or old.shape[axis - missing] == 1)
    ]
    return (*layers, *(fresh_layer(call, axis) for axis in grown))


def fresh_layer(call: Call, axis: int) -> Layer:
    """New labels along one axis of the result: aligned with whatever it will meet, but not silent."""
    size = call.result.shape[axis]
    ids = -call.book.fresh(size).reshape([size if other == axis else 1 for other in range(call.result.dim())])
    return Layer(ids, is_repeat=True)


@rule(aten.slice.Tensor, aten.flip, aten.roll, moves_data=True)
def along_axes(call: Call) -> Layers:
    """Labels sliced, flipped or rolled along the axes on which they vary."""

    def move(ids: Tensor) -> Tensor:
        if call.name == "slice":
            axis = call.argument("dim", 0) % ids.dim()
            if ids.shape[axis] == 1:
                return ids
            return ids[
                (slice(None),) * axis
                + (slice(call.argument("start"), call.argument("end"), call.argument("step", 1)),)
            ]
        return call.operator(ids.expand(_full_where_varying(ids, call.args[0])), *call.args[1:])

    return moved(call.layers(call.args[0]), move)


def _full_where_varying(ids: Tensor, tensor: Tensor) -> list[int]:
    return [size if ids.shape[axis] > 1 else 1 for axis, size in enumerate(tensor.shape)]


@rule(aten.select.int, moves_data=True)
def selected(call: Call) -> Layers:
    """One position of an axis."""
    axis, index = call.args[1] % call.args[0].dim(), call.args[2]
    return moved(call.layers(call.args[0]), lambda ids: ids.select(axis, index if ids.shape[axis] > 1 else 0))


@rule(aten.unbind, moves_data=True)
def unbound(call: Call) -> list[Layers]:
    """Every position of an axis."""
    axis = call.argument("dim", 0) % call.args[0].dim()
    layers = call.layers(call.args[0])
    return [
        moved(layers, lambda ids, index=index: ids.select(axis, index if ids.shape[axis] > 1 else 0))
        for index in range(len(call.result))
    ]


@rule(
    aten.split,
    aten.split_with_sizes,
    aten.chunk,
    aten.unsafe_split,
    aten.unsafe_chunk,
    aten.tensor_split,
    aten.unsafe_split_with_sizes,
    moves_data=True,
)
def split(call: Call) -> list[Layers]:
    """Stretches of an axis."""
    axis = call.argument("dim", 0) % call.args[0].dim()
    layers = call.layers(call.args[0])
    pieces, start = [], 0
    for piece in call.result:
        length = piece.shape[axis]
        pieces.append(
            moved(
                layers,
                lambda ids, start=start, length=length: (
                    ids.narrow(axis, start, length) if ids.shape[axis] > 1 else ids
                ),
            )
        )
        start += length
    return pieces


@rule(aten.repeat, aten.tile, moves_data=True)
def repeated(call: Call) -> Layers:
    """Labels repeated along the axes on which they vary."""
    repeats = call.args[1]

    def move(ids: Tensor) -> Tensor:
        ids = ids.reshape((1,) * (len(repeats) - ids.dim()) + tuple(ids.shape))
        return ids.repeat([count if ids.shape[axis] > 1 else 1 for axis, count in enumerate(repeats)])

    return moved(call.layers(call.args[0]), move)


@rule(aten.constant_pad_nd, moves_data=True)
def padded(call: Call) -> Layers:
    """Padding along a labelled axis has no label; padding with anything but zero breaks silence."""
    padding, fill = call.args[1], call.argument("value", 0)
    last = call.args[0].dim() - 1

    def move(ids: Tensor) -> Tensor:
        own = [amount if ids.shape[last - place // 2] > 1 else 0 for place, amount in enumerate(padding)]
        moved = torch.constant_pad_nd(ids, own, 0)
        return moved if fill == 0 else -moved.abs()

    return moved(call.layers(call.args[0]), move)


@rule(
    aten.pixel_shuffle,
    aten.pixel_unshuffle,
    aten.channel_shuffle,
    aten.native_channel_shuffle,
    aten.unfold,
    aten.diagonal,
    aten.im2col,
    aten.as_strided_copy,
    moves_data=True,
)
def moved_in_full(call: Call) -> Layers:
    """Labels expanded to the whole tensor and moved by the operator itself."""

    def move(ids: Tensor) -> Tensor:
        full = ids.expand(call.args[0].shape)
        if call.name == "im2col":
            # im2col knows no integers; float64 holds labels exactly.
            moved = call.operator(full.double(), *call.args[1:], **call.kwargs).long()
            # A column holds zeros where its window leaves the image; zeros agree with any label.
            label = moved.amax(dim=-1, keepdim=True) + moved.amin(dim=-1, keepdim=True).clamp_max(0)
            moved = torch.where((moved == 0) | (moved == label), label, moved)
        else:
            moved = call.operator(full, *call.args[1:], **call.kwargs)
        return call.book.compress(moved)

    return moved(call.layers(call.args[0]), move)


@rule(aten.tril, aten.triu)
def triangle(call: Call) -> Layers:
    """Some entries become zero; the labels stay."""
    return call.layers(call.args[0])
