"""Rules for products with one matrix per expert, each row with the matrix of the expert it was sent to."""

from __future__ import annotations

from torch import Tensor

from trainonce.tracing.operators.contraction import Operand, contract
from trainonce.tracing.operators.registry import Call, Layers, aten, no_rule, rule
from trainonce.tracing.state.labels import Layer

_BYTES = 16
"""The kernels read rows that begin at multiples of this."""

_SMALLEST = 2
"""Bytes of a number in the roughest precision that a model is used in."""


@rule(aten._grouped_mm, "transformers::grouped_mm_fallback", counts_cost=True)
def grouped_product(call: Call) -> Layers:
    """Rows sorted by expert, each multiplied with its expert's matrix; what is summed over may be cut.

    All experts lose the same hidden units. Whole experts stay.
    """
    rows, experts = call.args[:2]
    if experts.dim() != 3 or rows.dim() not in (2, 3) or call.argument("bias") is not None:
        return no_rule(call)
    left, right = list(call.layers(rows)), list(call.layers(experts))
    if rows.dim() == 2:
        reason = f"{call.where} picks experts by data: one at zero would still be picked"
        right = list(call.tie_along(right, (0,), reason))
        letters, sizes = ("nk", "ekm"), {"n": rows.shape[0], "k": rows.shape[1], "m": experts.shape[2]}
        out = "nm"
    else:
        letters, out = ("enk", "ekm"), "enm"
        sizes = dict(zip("enk", rows.shape, strict=True)) | {"m": experts.shape[2]}
    if call.operator is aten._grouped_mm.default:
        for layers, axes in ((left, (rows.dim() - 1,)), (right, (1, 2))):
            _note_multiples(call, layers, axes, rows if layers is left else experts)
    operands = (_operand(call, rows, left, letters[0]), _operand(call, experts, right, letters[1]))
    return contract(call, operands, out, sizes)


def _operand(call: Call, tensor: Tensor, layers: list[Layer], letters: str) -> Operand:
    value = call.value(tensor)
    return Operand(layers, letters, is_weight=value is None or value.is_weight)


def _note_multiples(call: Call, layers: list[Layer], axes: tuple[int, ...], tensor: Tensor) -> None:
    """What stays must fill whole pieces of memory, in each precision in which the whole model does."""
    for layer in layers:
        for axis in axes:
            fitting = [size for size in (_BYTES // _SMALLEST, _BYTES // 4) if tensor.shape[axis] % size == 0]
            if layer.varying == (axis,) and fitting:
                call.tracer.recording.multiples.append((layer, fitting[0]))
