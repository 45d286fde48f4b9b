"""The model's calls as the user wrote them.

Shapes are handed out with their source, and calls that move data are noted.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from trainonce.tracing.capture.other_ways import RECURRENT, called
from trainonce.tracing.state.expressions import (
    Attribute,
    AxisSize,
    Operation,
    TracedInt,
    leaves,
    leaves_of,
    map_leaves,
    source_of,
)
from trainonce.tracing.state.labels import Layer, Value
from trainonce.tracing.state.recording import Demand, Movement
from trainonce.tracing.state.tracer import Tracer

CREATION = frozenset({"zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty"})
"""Calls that make a tensor from sizes alone."""

VALUES = frozenset({torch.tensor, torch.as_tensor, torch.scalar_tensor})
"""Calls that turn numbers into tensors."""

COUNTING = frozenset({torch.Tensor.numel, torch.Tensor.nelement, torch.numel})
"""Calls that multiply all sizes of a tensor."""

LEAVING = frozenset(
    {torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__, torch.Tensor.__dlpack__}
)
"""Calls after which nobody sees what is done with the data."""

FOLLOWING = frozenset(
    {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
    | {"group_norm", "rms_norm", "layer_norm"}
    | {function.__name__ for function in RECURRENT}
)
"""Calls with a size argument whose rule says what it must be after the cut."""

SIZE_FREE = frozenset(
    {
        "to",
        "float",
        "half",
        "double",
        "type",
        "type_as",
        "contiguous",
        "clone",
        "detach",
        "permute",
        "transpose",
        "unsqueeze",
    }
    | {"swapaxes", "movedim", "flip", "cat", "concat", "stack"}
)
"""Calls that move data without naming any size: a cut can't upset them."""


_GET_SHAPE: Any = vars(torch._C.TensorBase)["shape"].__get__


class CallMode(TorchFunctionMode):
    """Sees calls as the user wrote them: hands out traced shapes and notes calls that only move data."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = self.tracer
        if func == _GET_SHAPE or func is torch.Tensor.size:
            return self._traced_size(func(*args, **kwargs), args, kwargs)
        if getattr(func, "__name__", "") == "__get__":
            return func(*args, **kwargs)
        if func in COUNTING:
            return self._traced_count(func(*args, **kwargs), args[0])
        if func is torch.Tensor.__len__ and (value := tracer.value(args[0])) is not None:
            tracer.ledger.pin(AxisSize(value, 0), value.shape[0])
        if func in LEAVING:
            if args[0] in tracer.hollow:
                tracer.refuse(func.__name__)
            for layer in value.layers if (value := tracer.value(args[0])) is not None else ():
                tracer.book.keep(
                    layer.ids, f"{func.__name__} in {tracer.where() or 'the model'} takes it out of torch"
                )
        before = map_leaves(
            lambda item: self._before(item) if isinstance(item, Tensor) else source_of(item), (args, kwargs)
        )
        if func in (torch.nn.functional.rms_norm, torch.rms_norm):
            self._demand_shape(*args, **kwargs)
        if func is torch.nn.functional.scaled_dot_product_attention and kwargs.get("scale") is None:
            self._pin_head_size(before)
        scalars = (args, kwargs)
        if func is torch.Tensor.__setitem__ and self._note_place(args[0], args[1]):
            scalars = args[2:]
        with tracer.calling(func, args, kwargs) as call:
            result = called(func, args, kwargs, tracer)
        if getattr(func, "__name__", "") in CREATION and isinstance(result, Tensor):
            with _disable_current_modes():
                self._note_creation(func.__name__, before, result)
        elif call.only_moves_data and func not in VALUES:
            self._note_movement(func, before, result)
        elif getattr(func, "__name__", "") not in FOLLOWING:
            self._pin_scalars(scalars)
        return result

    def _note_place(self, target: Tensor, key: Any) -> bool:
        """Note that the sizes in `target[key] = ...` must follow a cut as those in `target[key]` do.

        False where labels can't say so.
        """
        value = self.tracer.value(target)
        if value is None or not value.layers or any(isinstance(item, Tensor) for item in leaves_of(key)):
            return False
        with self.tracer.calling(torch.Tensor.__getitem__, (target, key), {}):
            place = target[key]
        self._note_movement(torch.Tensor.__getitem__, ((value, map_leaves(source_of, key)), {}), place)
        return True

    def _before(self, tensor: Tensor) -> Any:
        """What a movement remembers of an argument.

        Its labels, or for indices without labels the indices themselves.
        """
        value = self.tracer.value(tensor)
        is_index = not tensor.is_floating_point() and not tensor.is_complex()
        return tensor if value is None or (is_index and not value.layers) else value

    def _traced_size(self, size: Any, args: Any, kwargs: Any) -> Any:
        value = self.tracer.value(args[0])
        if value is None:
            return size
        if isinstance(size, int):
            axis = args[1] if len(args) > 1 else kwargs["dim"]
            return TracedInt(size, AxisSize(value, int(axis) % len(value.shape)), self.tracer.ledger)
        return torch.Size(
            [TracedInt(length, AxisSize(value, axis), self.tracer.ledger) for axis, length in enumerate(size)]
        )

    def _traced_count(self, count: int, tensor: Tensor) -> int:
        """How many elements a tensor has, as the product of its sizes."""
        value = self.tracer.value(tensor)
        if value is None:
            return count
        sizes = [
            TracedInt(size, AxisSize(value, axis), self.tracer.ledger)
            for axis, size in enumerate(value.shape)
        ]
        return math.prod(sizes)

    def _pin_scalars(self, arguments: Any) -> None:
        """A size that takes part in arithmetic on tensors (`x / x.shape[1]`) must not change."""
        for number in leaves_of(arguments):
            if isinstance(number, TracedInt):
                self.tracer.ledger.pin(number.source, int.__int__(number))

    def _demand_shape(self, data: Tensor, normalized_shape: Any, *_: Any, **__: Any) -> None:
        """The sizes that a norm is told must be those of the axes that it runs over."""
        value = self.tracer.value(data)
        if value is None:
            return
        for axis, size in zip(range(-len(normalized_shape), 0), normalized_shape, strict=True):
            for layer in (layer for layer in value.layers if layer.varying == (axis % len(value.shape),)):
                demand = Demand(
                    self.tracer.where(), source_of(size), layer, "the shape that rms_norm is told"
                )
                self.tracer.recording.demands.append(demand)

    def _pin_head_size(self, before: Any) -> None:
        """Attention without a scale of its own divides by the root of the head's size."""
        query = next((item for item in leaves_of(before) if isinstance(item, Value)), None)
        if query is not None:
            axis = len(query.shape) - 1
            self.tracer.ledger.pin(AxisSize(query, axis), query.shape[axis])

    def _note_creation(self, name: str, before: Any, result: Tensor) -> None:
        """A tensor made with sizes of other things gets labels of its own, to be tied to what it meets."""
        args, kwargs = before
        given = args[1:] if name.startswith("new_") else args
        sizes = [item for item in leaves_of((given, kwargs)) if _is_size(item)]
        if len(sizes) < result.dim() or all(isinstance(item, int | Value | Tensor) for item in sizes):
            return
        layers = []
        for axis, source in enumerate(sizes[: result.dim()]):
            if result.shape[axis] < 2 or not _may_change(source):
                continue
            ids = self.tracer.book.fresh(result.shape[axis]).reshape(
                [-1 if other == axis else 1 for other in range(result.dim())]
            )
            layers.append(Layer(ids if name.endswith("zeros") else -ids))
            self.tracer.recording.demands.append(
                Demand(self.tracer.where(), source, layers[-1], "the size of a new tensor")
            )
        self.tracer.remember(result, Value(tuple(result.shape), tuple(layers), is_weight=False))

    def _note_movement(self, func: Any, before: Any, result: Any) -> None:
        tracer = self.tracer
        if getattr(func, "__name__", "") in SIZE_FREE or not any(
            isinstance(item, Value) and item.layers for item in leaves_of(before)
        ):
            return
        results = [tracer.values.get(tensor) for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        if not results or any(value is None for value in results):
            return
        tracer.recording.movements.append(
            Movement(tracer.where(), func, before, tuple(value for value in results if value is not None))
        )


def _may_change(source: Any) -> bool:
    """Whether a cut can change a size: it comes from an attribute, or from an axis that has labels."""
    return any(
        isinstance(leaf, Attribute) or any(leaf.axis in layer.varying for layer in leaf.value.layers)
        for leaf in leaves(source)
    )


def _is_size(item: Any) -> bool:
    """Whether an argument is a size: an integer, where it comes from, or a tensor that holds one."""
    if isinstance(item, Tensor | Value):
        return len(item.shape) == 0
    return isinstance(item, int | Attribute | AxisSize | Operation) and not isinstance(item, bool)
