"""Example inputs from shapes such as `1x3x224x224`, `1x16:int` or `mask=1x16:bool`, with a fixed seed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from trainonce.errors import InputError
from trainonce.structure.channels import Example

SEED = 0
_PATTERN = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:x\d+)*)(?::(?P<kind>float|int|bool))?")


def parse_inputs(texts: Sequence[str]) -> Example:
    """A tensor for one shape, a tuple for several, a dict for named ones."""
    parsed = [_parse(text) for text in texts]
    names = [name for name, _ in parsed]
    tensors = [tensor for _, tensor in parsed]
    named = {name: tensor for name, tensor in parsed if name is not None}
    if named:
        if len(named) != len(parsed):
            raise InputError(
                f"inputs {', '.join(texts)}: name all of them, each differently, or none of them."
            )
        return named
    return tensors[0] if len(names) == 1 else tuple(tensors)


def draw_image(*shape: int) -> Tensor:
    """Normally distributed values; the same ones for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED))


def draw_tokens(*shape: int, vocabulary: int = 2) -> Tensor:
    """Whole numbers from 0 to `vocabulary` - 1; the same ones for the same shape."""
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(SEED))


def describe(example: Example) -> str:
    """The shapes of an example in a few words, such as `1x3x224x224` or `input_ids=1x16:int`."""
    if isinstance(example, Tensor):
        kind = "" if example.is_floating_point() else ":bool" if example.dtype == torch.bool else ":int"
        return "x".join(str(size) for size in example.shape) + kind
    if isinstance(example, dict):
        return ", ".join(f"{name}={describe(value)}" for name, value in example.items())
    if isinstance(example, (tuple, list)):
        inside = ", ".join(describe(value) for value in example)
        return f"[{inside}]" if isinstance(example, list) else inside
    return str(example)


def _parse(text: str) -> tuple[str | None, Tensor]:
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not a shape. Write it as 1x3x224x224, 1x16:int or mask=1x16:bool.")
    shape = [int(size) for size in match["shape"].split("x")]
    if 0 in shape:
        raise InputError(f"{text!r} has a dimension of size 0. Every dimension must be at least 1.")
    try:
        if match["kind"] in ("int", "bool"):
            tokens = draw_tokens(*shape)
            return match["name"], tokens.bool() if match["kind"] == "bool" else tokens
        return match["name"], draw_image(*shape)
    except (RuntimeError, TypeError, OverflowError):
        raise InputError(f"an input of {text!r} does not fit into memory. Use a smaller one.") from None
