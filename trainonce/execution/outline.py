"""What an example looks like, without its content: as plain data, and as a stand-in to run a model on.

A saved model carries it, so that `load` can run the user's own model. The user's images and words stay where
they are.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import TrainonceError

MOST_ELEMENTS, MOST_INTEGERS = 2**22, 2**16
"""Most elements of a stand-in, and of its integer tensors: a file may not ask for more memory."""

MOST_PARTS = 1000

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    )
} | {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
}


class OutlineError(TrainonceError, ValueError):
    """An example that plain data can't describe, or data that describes none."""


def outline_of(example: Any) -> Any:
    """Shapes, dtypes and structure of an example, as JSON data; None if it holds what has no outline."""
    try:
        return _outline(example)
    except OutlineError:
        return None


def stand_in(outline: Any) -> Any:
    """An example that looks like the one that `outline_of` was given.

    OutlineError if the data describes none, or one that is too large.
    """
    parts = _parts(outline)
    sizes = [(_num_elements(part), "range" in part) for part in parts]
    num_integers = sum(size for size, is_whole in sizes if is_whole)
    if (
        len(parts) > MOST_PARTS
        or num_integers > MOST_INTEGERS
        or sum(size for size, _ in sizes) > MOST_ELEMENTS
    ):
        raise OutlineError("the example is too large")
    try:
        return _made(outline, torch.Generator().manual_seed(0))
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise OutlineError(f"it does not describe an example ({type(error).__name__})") from None


def _outline(item: Any) -> Any:
    if isinstance(item, Tensor):
        dtype = str(item.dtype).removeprefix("torch.")
        if dtype not in _DTYPES or item.is_sparse or item.is_nested:
            raise OutlineError(f"a tensor of {dtype}")
        found: dict[str, Any] = {"tensor": [int(size) for size in item.shape], "dtype": dtype}
        if not (item.is_floating_point() or item.is_complex()):
            # Indices of words or classes: others would be outside the model's tables.
            found["range"] = (
                [0, 1] if item.is_meta or not item.numel() else [int(item.min()), int(item.max())]
            )
        return found
    if (
        item is None
        or isinstance(item, bool | int | str)
        or (isinstance(item, float) and math.isfinite(item))
    ):
        return {"value": item}
    if isinstance(item, tuple | list) and type(item) in (tuple, list):
        return {type(item).__name__: [_outline(part) for part in item]}
    if type(item) is dict and all(isinstance(name, str) for name in item):
        return {"dict": {name: _outline(part) for name, part in item.items()}}
    raise OutlineError(f"a {type(item).__name__}")


def _parts(outline: Any) -> list[dict[str, Any]]:
    """Every part of an outline; OutlineError for an unexpected entry."""
    found, waiting = [], [outline]
    while waiting and len(found) <= MOST_PARTS:
        part = waiting.pop()
        if not isinstance(part, dict):
            raise OutlineError("it has an unexpected entry")
        found.append(part)
        for kind in ("tuple", "list"):
            waiting += part[kind] if isinstance(part.get(kind), list) else []
        waiting += part["dict"].values() if isinstance(part.get("dict"), dict) else []
    return found


def _num_elements(part: dict[str, Any]) -> int:
    shape = part.get("tensor", [0])
    if (
        not isinstance(shape, list)
        or len(shape) > 16
        or not all(type(size) is int and 0 <= size <= MOST_ELEMENTS for size in shape)
    ):
        raise OutlineError("it has an impossible tensor shape")
    return math.prod(shape)


def _made(part: Any, generator: torch.Generator) -> Any:
    if "tensor" in part:
        dtype = _DTYPES[part["dtype"]]
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(part["tensor"], generator=generator).to(dtype)
        low, high = part["range"]
        return torch.randint(low, high + 1, part["tensor"], generator=generator).to(dtype)
    if "value" in part:
        return part["value"]
    if "dict" in part:
        return {name: _made(item, generator) for name, item in part["dict"].items()}
    items = [_made(item, generator) for item in part["tuple" if "tuple" in part else "list"]]
    return tuple(items) if "tuple" in part else items
