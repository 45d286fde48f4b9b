"""An operator's rule applied to one call: gives the results of the call their labels.

A second run repeats most of the first one on the same labels; what a rule said then is recalled.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainonce.tracing.operators.pointwise import pointwise
from trainonce.tracing.operators.registry import (
    Call,
    Layers,
    RuleFunction,
    aten,
    find_rule,
    is_product,
    is_strided,
    no_rule,
    only_moves_data,
    tensors_in,
)
from trainonce.tracing.state.labels import LabelBook, Layer, Value
from trainonce.tracing.state.tracer import Tracer


def apply_rule(call: Call) -> None:
    """Give the results of a call their labels."""
    call.tracer.note_use(call.tensors)
    call.tracer.keep_delicate(call.tensors)
    values = [call.value(tensor) for tensor in call.tensors]
    known = [value for value in values if value is not None]
    results = tensors_in(call.result)
    if (reason := _layout_refusal(call, results)) is not None:
        call.keep([layer for value in known for layer in value.layers], reason)
        _count_cost(call)
        return
    if not known and call.operator is not aten.expand.default:
        _count_cost(call)
        return
    is_weight = all(value.is_weight for value in known)
    in_place = {id(tensor) for tensor in call.tensors}
    for tensor, group in zip(results, _recalled(call, values, is_weight, len(results)), strict=True):
        value = Value(tuple(tensor.shape), group, is_weight)
        if id(tensor) in in_place:
            call.tracer.overwrite(tensor, value, call.name)
        else:
            call.tracer.remember(tensor, value)


def _layout_refusal(call: Call, results: list[Tensor]) -> str | None:
    """Why labels can't pass through a call; None if its tensors have axes to carry them.

    A sparse matrix times a dense one is a product like any other.
    """
    odd = [tensor for tensor in results if not is_strided(tensor)]
    if not (odd := odd or [tensor for tensor in call.tensors if tensor.is_nested]):
        return None
    kind = "nested" if odd[0].is_nested else str(odd[0].layout).removeprefix("torch.").strip("_")
    return f"{call.words} in {call.where} works on a tensor of layout {kind}"


def _recalled(call: Call, values: list[Value | None], is_weight: bool, num_results: int) -> list[Layers]:
    """The layers of each result; those of an earlier run, if it made the same call on the same labels."""
    recording = call.tracer.recording
    question = _question(call, values)
    if not call.tracer.counts_cost and question in recording.answers:
        return recording.answers[question][0]
    before = (call.book.num_labels, len(recording.demands))
    known = [value for value in values if value is not None]
    layers = _layers_of_result(call, known, is_weight)
    groups = layers if isinstance(layers, list) else [layers] * num_results
    if not is_weight:
        for group in groups:
            _note_writers(call.tracer, group)
        incoming = [layer for value in known if not value.is_weight for layer in value.layers]
        groups = [tuple(_same_or_new(call.book, layer, incoming) for layer in group) for group in groups]
    # New labels and demands belong to one call alone.
    if question is not None and before == (call.book.num_labels, len(recording.demands)):
        recording.answers[question] = (groups, known)
    return groups


def _same_or_new(book: LabelBook, layer: Layer, incoming: list[Layer]) -> Layer:
    """The layer without its origins.

    The very one that came in if it passed unchanged, so that later calls are recalled.
    """
    for other in incoming:
        if other is layer or (
            (other.is_repeat, other.is_table) == (layer.is_repeat, layer.is_table)
            and other.ids.shape == layer.ids.shape
            and torch.equal(book.roots(other.ids), book.roots(layer.ids))
        ):
            return other
    return Layer(layer.ids, is_repeat=layer.is_repeat)


def _layers_of_result(call: Call, known: list[Value], is_weight: bool) -> Layers | list[Layers]:
    function, moves_data = _function_for(call), only_moves_data(call.operator)
    is_table = (
        is_weight
        and not moves_data
        and not any(layer.origins - call.tracer.buffers for value in known for layer in value.layers)
    )
    call.sees_tables = function is pointwise or (moves_data and is_weight)
    has_labels = call.operator is aten.expand.default or any(value.layers for value in known)
    # Channels of what is computed from buffers (rotary frequencies, frozen norms) are nobody's, unless data
    # meets them entry by entry.
    if has_labels and (not is_table or function is pointwise):
        layers = function(call)
        return _as_tables(layers) if is_table else layers
    _count_cost(call)
    return ()


def _as_tables(layers: Layers | list[Layers]) -> Layers | list[Layers]:
    if isinstance(layers, list):
        return [tuple(replace(layer, is_table=True) for layer in group) for group in layers]
    return tuple(replace(layer, is_table=True) for layer in layers)


def _question(call: Call, values: list[Value | None]) -> Hashable:
    """All that a rule may look at, by the identity of the labels.

    None if it may look at more, as at constant indices.
    """
    waiting = iter(values)

    def describe(item: Any) -> Hashable:
        if isinstance(item, Tensor):
            value = next(waiting)
            layers = () if value is None else tuple(map(id, value.layers))
            return item.shape, item.dtype, layers, None if value is None else value.is_weight
        return tuple(map(describe, item)) if isinstance(item, tuple | list) else item

    constants = [tensor for tensor, value in zip(call.tensors, values, strict=True) if value is None]
    # How a copy treats labels depends on what else lies in the target's memory.
    if call.name == "copy_" or any(tensor.dim() and not tensor.is_floating_point() for tensor in constants):
        return None
    found = find_rule(call.operator)
    if found is not None and found.sees_labels_alone:
        return (
            found,
            len(tensors_in(call.result)),
            call.where,
            tuple(map(describe, call.tensors)),
        )
    arguments = (*map(describe, call.args), *((name, describe(item)) for name, item in call.kwargs.items()))
    return call.operator, call.where, call.tracer.is_opaque, arguments


def _function_for(call: Call) -> RuleFunction:
    if (found := find_rule(call.operator)) is not None:
        return found.function
    # torch.equal is called pointwise, but what it gives is no tensor.
    return pointwise if _is_pointwise(call.operator) and tensors_in(call.result) else no_rule


def _is_pointwise(operator: Any) -> bool:
    if torch.Tag.pointwise in operator.tags:
        return True
    # Some in-place variants (hardswish_) lack the tag that their plain variant has.
    plain = operator._schema.name.removeprefix("aten::").removesuffix("_")
    overload = getattr(getattr(aten, plain, None), operator._overloadname, None)
    return operator._schema.is_mutable and overload is not None and torch.Tag.pointwise in overload.tags


def _count_cost(call: Call) -> None:
    """Operators on constants and unlabelled data still cost multiply-adds; nested tensors tell no sizes."""
    if is_product(call.operator) and not any(tensor.is_nested for tensor in call.tensors):
        _function_for(call)(call)


def _note_writers(tracer: Tracer, layers: Layers) -> None:
    for layer in layers:
        # Training can't drive a buffer to zero.
        tracer.recording.writers |= layer.origins - tracer.buffers
