"""Sizes that modules remember as plain integers: read, changed, and brought in line with the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from trainonce.execution.settings import holds_settings

SIZES: Mapping[type[nn.Module], tuple[tuple[str, Callable[[Any], int]], ...]] = {
    nn.modules.conv._ConvTransposeNd: (
        ("in_channels", lambda m: m.weight.shape[0]),
        ("out_channels", lambda m: m.weight.shape[1] * m.groups),
    ),
    nn.modules.conv._ConvNd: (
        ("out_channels", lambda m: m.weight.shape[0]),
        ("in_channels", lambda m: m.weight.shape[1] * m.groups),
    ),
    nn.Linear: (("out_features", lambda m: m.weight.shape[0]), ("in_features", lambda m: m.weight.shape[1])),
    nn.Bilinear: (("out_features", lambda m: m.weight.shape[0]),),
    nn.modules.batchnorm._NormBase: (
        ("num_features", lambda m: (m.weight if m.weight is not None else m.running_mean).shape[0]),
    ),
    nn.GroupNorm: (("num_channels", lambda m: m.weight.shape[0]),),
    nn.Embedding: (
        ("num_embeddings", lambda m: m.weight.shape[0]),
        ("embedding_dim", lambda m: m.weight.shape[1]),
    ),
    nn.EmbeddingBag: (
        ("num_embeddings", lambda m: m.weight.shape[0]),
        ("embedding_dim", lambda m: m.weight.shape[1]),
    ),
    nn.MultiheadAttention: (
        ("embed_dim", lambda m: _projection(m, "q").shape[1]),
        ("kdim", lambda m: _projection(m, "k").shape[1]),
        ("vdim", lambda m: _projection(m, "v").shape[1]),
    ),
    nn.PReLU: (("num_parameters", lambda m: m.weight.shape[0]),),
}
"""What torch's layers remember about their own weights; the first class that matches counts."""


def _projection(attention: nn.MultiheadAttention, part: str) -> Tensor:
    """The weights that make query, key or value."""
    packed = attention.in_proj_weight
    return packed if packed is not None else getattr(attention, f"{part}_proj_weight")


def mend_sizes(module: nn.Module) -> None:
    """Bring the sizes that one of torch's layers remembers in line with its weights."""
    for kind, sizes in SIZES.items():
        if isinstance(module, kind):
            for name, size in sizes:
                try:
                    found = int(size(module))
                except (AttributeError, IndexError):
                    # Lazy or parametrized modules may hold no such tensor.
                    continue
                if type(vars(module).get(name)) is int and vars(module)[name] != found:
                    vars(module)[name] = found
            return


def get_attribute(module: nn.Module | None, name: str, index: int | None) -> Any:
    """The integer attribute of a module, or one entry of a tuple; None if there is no such integer.

    `config.num_heads` is that of the configuration which the module holds.
    """
    holder, field = _holder_of(module, name)
    value = None if holder is None else vars(holder).get(field)
    if index is None:
        return value if type(value) is int else None
    return (
        value[index]
        if isinstance(value, tuple | list) and index < len(value) and type(value[index]) is int
        else None
    )


def set_attribute(module: nn.Module, name: str, index: int | None, number: int) -> None:
    """Change the integer that `get_attribute` reads.

    A configuration is copied before, as other modules may hold the same one.
    """
    holder, field = _holder_of(module, name)
    if holder is not module:
        holder = vars(module)[name.partition(".")[0]] = copy.copy(holder)
    value = vars(holder)[field]
    if index is None:
        vars(holder)[field] = number
    elif isinstance(value, list):
        vars(holder)[field] = [*value[:index], number, *value[index + 1 :]]
    else:
        vars(holder)[field] = type(value)((*value[:index], number, *value[index + 1 :]))


def _holder_of(module: nn.Module | None, name: str) -> tuple[Any, str]:
    """The module, or the configuration that it holds, and the name of the number there."""
    first, _, rest = name.partition(".")
    if not rest or module is None:
        return module, name
    held = vars(module).get(first)
    return (held, rest) if holds_settings(held) else (None, rest)
