"""A run without the arithmetic: zeros of the same shape stand in for products whose values nobody needs.

Labels depend on what a model does, not on the numbers that it computes, as long as no number decides what it
does. So products, which are most of a forward pass, and whatever is computed from them need no values. A run
that asks for one of these (`if x.max() > 0`, indices found by a sort) stops with `ValueNeededError`, and has
to be repeated in full.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainonce.tracing.operators.registry import aten, is_product, is_strided, tensors_in
from trainonce.tracing.state.tracer import Tracer

_LEAST_ELEMENTS = 10_000
"""A smaller product costs less than finding out the shape of its result."""

_FACTORS = {
    aten.mm.default: (0, 1),
    aten.bmm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.baddbmm.default: (1, 2),
}
"""Where the two factors of a matrix product stand; torch takes a hundred times longer to tell its shape."""

_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}

_ASKING = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


class StandIns:
    """The tensors of one run whose content was not computed."""

    def __init__(self, tracer: Tracer) -> None:
        """For the run that `tracer` records."""
        self.tracer = tracer

    def compute(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the operator gives; zeros if it is a product, or whatever it makes of such zeros."""
        tensors = tensors_in((args, kwargs))
        hollow = [tensor for tensor in tensors if tensor in self.tracer.hollow]
        is_large = (
            is_product(operator)
            and sum(map(Tensor.numel, tensors)) > _LEAST_ELEMENTS
            and all(map(is_strided, tensors))
        )
        if not hollow and not (is_large and any(map(self._depends_on_input, tensors))):
            return operator(*args, **kwargs)
        if hollow:
            self._refuse_questions(operator, args, kwargs, hollow)
        result = (
            _outline(operator, args, kwargs, tensors[0].device) if is_large else operator(*args, **kwargs)
        )
        if not all(map(is_strided, tensors_in(result))):
            self.tracer.refuse(str(operator))
        # A batch norm writes to its statistics, though its schema does not say so.
        written = (
            [tensor for tensor in tensors if not isinstance(tensor, nn.Parameter)]
            if "batch_norm" in str(operator)
            else []
        )
        for tensor in [*tensors_in(result), *written]:
            self.tracer.hollow[tensor] = True
        return result

    def _depends_on_input(self, tensor: Tensor) -> bool:
        value = self.tracer.value(tensor)
        return value is not None and not value.is_weight

    def _refuse_questions(
        self, operator: Any, args: Any, kwargs: dict[str, Any], hollow: list[Tensor]
    ) -> None:
        """Raise ValueNeededError if the operator hands out a value, picks by it, or overwrites a real one."""
        schema = operator._schema
        tells = bool(_ASKING.intersection(operator.tags)) or not all(
            isinstance(item.type, torch.TensorType | torch.ListType) for item in schema.returns
        )
        # Whole numbers may be indices; operators that work on single elements don't use them so.
        picks = torch.Tag.pointwise not in operator.tags and any(
            not (tensor.is_floating_point() or tensor.is_complex()) for tensor in hollow
        )
        overwrites = schema.is_mutable and any(
            tensor not in self.tracer.hollow
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tensors_in(args[place] if place < len(args) else kwargs.get(argument.name))
        )
        if tells or picks or overwrites:
            self.tracer.refuse(str(operator))


def _outline(operator: Any, args: Any, kwargs: dict[str, Any], device: torch.device) -> Any:
    """Zeros in the shape of what the operator would give."""
    if operator in _FACTORS:
        left, right = (args[place] for place in _FACTORS[operator])
        return left.new_zeros(*left.shape[:-1], right.shape[-1])
    if (
        operator is aten.convolution.default
        and (layout := _LAYOUTS.get(args[0].dim()))
        and any(_has(layout, item) for item in args[:2])
    ):
        # torch passes such a layout on; the shape alone would not tell.
        outline = operator(*map(_without_content, args), **kwargs)
        return torch.empty(outline.shape, dtype=outline.dtype, device=device, memory_format=layout).zero_()
    outlines = operator(
        *map(_without_content, args), **{name: _without_content(item) for name, item in kwargs.items()}
    )
    return tree_map_only(
        Tensor,
        lambda outline: torch.empty_strided(
            outline.shape, outline.stride(), dtype=outline.dtype, device=device
        ).zero_(),
        outlines,
    )


def _has(layout: torch.memory_format, tensor: Tensor) -> bool:
    return tensor.is_contiguous(memory_format=layout) and not tensor.is_contiguous()


def _without_content(item: Any) -> Any:
    if not isinstance(item, Tensor):
        return item
    return torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="meta")
