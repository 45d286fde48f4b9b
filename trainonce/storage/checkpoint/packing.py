"""Nested state as JSON plus tensors, and back.

Every container is written with its type, so that a tuple comes back as a tuple and an int key as an int:

    {"lr": 0.1, 3: (x,)}  ->  {"dict": [["lr", 0.1], [3, {"tuple": [{"tensor": "3/0"}]}]]},  {"3/0": x}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from trainonce.messages.plain_text import quoted


class PackingError(TypeError):
    """A value that is neither a tensor nor plain data."""


def pack(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """The state as JSON data, and the tensors that it names."""
    tensors: dict[str, Tensor] = {}
    return _pack(state, "", tensors), tensors


def unpack(data: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that `pack` was given; KeyError, TypeError or ValueError for any other data."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    ((kind, content),) = data.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if kind == "dict":
        return {_key(key): unpack(value, tensors) for key, value in content}
    if kind == "list":
        return [unpack(value, tensors) for value in content]
    if kind == "tuple":
        return tuple(unpack(value, tensors) for value in content)
    raise ValueError(f"unknown kind {quoted(kind)}")


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = path or "value"
        while name in tensors:
            # The keys 3 and "3" give the same path.
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # JSON has no NaN and no infinities.
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Mapping):
        return {"dict": [[_key(key), _pack(item, _join(path, key), tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [_pack(item, _join(path, index), tensors) for index, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    raise PackingError(
        f"{path or 'the state'} is a {type(value).__name__}, which can't be saved. Use tensors, numbers, "
        "strings, lists and dicts."
    )


def _join(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)


def _key(key: Any) -> Any:
    if key is None or isinstance(key, bool | int | str):
        return key
    raise PackingError(
        f"a key of the state is a {type(key).__name__}, which can't be saved. Use strings and integers."
    )
