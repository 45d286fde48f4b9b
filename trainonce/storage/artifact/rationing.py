"""A run of the model that may not take much memory.

Takes operators as they come, refuses one before it makes a large tensor.

The sizes of the run come from a file. Each of its tensors may look harmless and their product be too large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

MOST_ELEMENTS = 2**23
"""Of any tensor in the run."""

_LOOK_FROM = 2**16
"""Elements of an operator's arguments from which on its result is looked at before it is made."""

_FROM_SIZES = frozenset(
    {"zeros", "ones", "empty", "full", "rand", "randn", "arange", "empty_strided"}
    | {"new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided", "repeat"}
)
"""Operators that make as much as their arguments say, whatever they are given."""


class TooLargeError(Exception):
    """A tensor that is larger than a file may ask for."""


class Ration(TorchDispatchMode):
    """Ends a run that would make a tensor of more than MOST_ELEMENTS."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [item for item in args if isinstance(item, Tensor)]
        if len(tensors) > 1 and torch.Tag.pointwise in func.tags:
            _check(_broadcast_size([tensor.shape for tensor in tensors]))
        if func.overloadpacket.__name__ in _FROM_SIZES:
            sizes = next((item for item in args if isinstance(item, list | tuple)), ())
            _check(
                math.prod(sizes)
                * max([1, *(tensor.numel() for tensor in tensors[:1] if "repeat" in str(func))])
            )
        elif sum(tensor.numel() for tensor in tensors) > _LOOK_FROM and any(
            map(torch.is_floating_point, tensors)
        ):
            _check(_size_of_result(func, args, kwargs))
        result = func(*args, **kwargs)
        for item in result if isinstance(result, tuple | list) else (result,):
            _check(item.numel() if isinstance(item, Tensor) else 0)
        return result


def _check(num_elements: int) -> None:
    if num_elements > MOST_ELEMENTS:
        raise TooLargeError("the example that the file describes is too large")


def _broadcast_size(shapes: Sequence[Sequence[int]]) -> int:
    """Elements of what these shapes give together; 0 if they don't go together."""
    size = 1
    for place in range(1, max(map(len, shapes)) + 1):
        lengths = {shape[-place] for shape in shapes if len(shape) >= place} - {1}
        if len(lengths) > 1:
            return 0
        size *= lengths.pop() if lengths else 1
    return size


def _size_of_result(func: Any, args: Any, kwargs: dict[str, Any]) -> int:
    """Elements of the largest result, found without memory; 0 where only the values can tell."""

    def without_content(tensor: Tensor) -> Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")

    with _disable_current_modes():
        try:
            result = func(
                *tree_map_only(Tensor, without_content, args),
                **tree_map_only(Tensor, without_content, kwargs),
            )
        except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError):
            return 0
    return max((item.numel() for item in tree_leaves(result) if isinstance(item, Tensor)), default=0)
