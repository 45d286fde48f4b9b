"""How large the files of a saved model may be.

Takes the model that they are for, and refuses larger ones before they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor, nn

MOST_PLANS = 64
"""Cuts after each other that are saved as such; more, or longer ones, become one."""

_ROOM = 2**18
"""Bytes that any file may have, for the smallest of models."""

_MOST_MEMORY = 200 * 2**20
"""Bytes that a parsed plan may take beyond twice its file.

Plans of models with 70 billion parameters take less.
"""


def most_plan_bytes(model: nn.Module, tensors: Mapping[str, Tensor]) -> int:
    """What the plans for this model can need.

    Linear in its channels, and in the number of its tensors and attributes.
    """
    # A cut lists the positions that stay, half as long as reckoned here; each later one has fewer of them
    # left.
    lists = sum(_length(name) + 64 + 12 * size for name, tensor in tensors.items() for size in tensor.shape)
    shapes = sum(_length(name) + 64 + 24 * tensor.dim() for name, tensor in tensors.items())
    sizes = sum(
        _length(path) + _length(name) + 96
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        for number in (value if isinstance(value, tuple | list) else (value,))
        if type(number) is int
    )
    return _ROOM + 4 * lists + MOST_PLANS * shapes + 16 * sizes


def takes_much_memory(text: bytes) -> bool:
    """Whether JSON becomes far larger when it is parsed than lists of numbers do, as nothing that we write does.

    Lists and dicts of nothing take 25 times the memory that they take in the file.
    """
    parsed = 64 * (text.count(b"[") + text.count(b"{")) + 36 * text.count(b",") + 29 * text.count(b'"')
    return parsed > 2 * len(text) + _MOST_MEMORY


def most_weights_bytes(stored: Mapping[str, int]) -> int:
    """What a file of tensors with these names and bytes can need, its header included."""
    return _ROOM + sum(_length(name) + 512 + num_bytes for name, num_bytes in stored.items())


def _length(name: str) -> int:
    return len(json.dumps(name))
