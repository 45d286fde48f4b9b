"""A memory limit for running the model on untrusted sizes: large tensors are rejected before allocation.

The sizes come from a file: each input may look harmless and their product be too large.
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
"""Limit for any tensor in the run."""

_LOOK_FROM = 2**16
"""Elements of an operator's arguments above which its result is sized before it is computed."""

_FROM_SIZES = frozenset(
    {"zeros", "ones", "empty", "full", "rand", "randn", "arange", "empty_strided"}
    | {"new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided", "repeat"}
)
"""Operators whose output size is given by an argument, not by the input tensors."""


class TooLargeError(Exception):
    """A tensor larger than an untrusted file may ask for."""


class Ration(TorchDispatchMode):
    """Raises TooLargeError before a tensor of more than MOST_ELEMENTS is allocated."""

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
        raise TooLargeError("the example described in the file is too large")


def _broadcast_size(shapes: Sequence[Sequence[int]]) -> int:
    """Elements of the broadcast of these shapes; 0 if they can't be broadcast."""
    size = 1
    for place in range(1, max(map(len, shapes)) + 1):
        lengths = {shape[-place] for shape in shapes if len(shape) >= place} - {1}
        if len(lengths) > 1:
            return 0
        size *= lengths.pop() if lengths else 1
    return size


def _size_of_result(func: Any, args: Any, kwargs: dict[str, Any]) -> int:
    """Elements of the largest result, computed on the meta device; 0 if it depends on values."""

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
