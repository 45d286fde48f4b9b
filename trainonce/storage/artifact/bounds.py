"""Upper bounds on the files of a saved model, so that oversized ones are rejected before they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import Tensor, nn

from trainonce.storage.artifact.about import MOST_BYTES

MOST_PLANS = 64
"""Successive cuts that are saved one by one; more, or larger ones, are merged into one."""

_ROOM = 2**18
"""Bytes that any file may have, even for the smallest model."""

MOST_UNSEEN_BYTES = 2**27
"""Of a plan whose model is not known yet; a 70B model needs less."""

_MOST_MEMORY = 200 * 2**20
"""Bytes of memory that a parsed plan may take beyond twice its file size; a 70B model needs less."""


def most_plan_bytes(model: nn.Module, tensors: Mapping[str, Tensor]) -> int:
    """The most bytes that plans for this model can need: linear in channels, tensors and attributes."""
    # A cut lists the kept positions, at most half of this; each later cut has fewer left to list.
    lists = sum(_length(name) + 64 + 12 * size for name, tensor in tensors.items() for size in tensor.shape)
    shapes = sum(_length(name) + 64 + 24 * tensor.dim() for name, tensor in tensors.items())
    sizes = sum(
        _length(path) + _length(name) + 96
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        for number in (value if isinstance(value, tuple | list) else (value,))
        if type(number) is int
    )
    return _ROOM + MOST_BYTES + 4 * lists + MOST_PLANS * shapes + 16 * sizes


def takes_much_memory(text: bytes) -> bool:
    """Whether JSON would take far more memory when parsed than anything that we write.

    Empty lists and dicts take 25 times their size in the file.
    """
    parsed = 64 * (text.count(b"[") + text.count(b"{")) + 36 * text.count(b",") + 29 * text.count(b'"')
    return parsed > 2 * len(text) + _MOST_MEMORY


def most_weights_bytes(stored: Mapping[str, int]) -> int:
    """The most bytes of a safetensors file with these names and sizes, header included."""
    return _ROOM + sum(_length(name) + 512 + num_bytes for name, num_bytes in stored.items())


def _length(name: str) -> int:
    return len(json.dumps(name))
