"""Tensors with only some positions of their axes left: weights, and what optimizers keep of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def narrowed(tensor: Tensor, cuts: Iterable[tuple[int, tuple[int, ...]]]) -> Tensor:
    """A copy that has only the kept positions of each axis, in the memory format of the original."""
    channels_last = (
        tensor.dim() == 4
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
    )
    for axis, kept in cuts:
        tensor = tensor.index_select(axis, torch.tensor(kept, dtype=torch.long, device=tensor.device))
    return tensor.contiguous(memory_format=torch.channels_last) if channels_last else tensor.contiguous()


def narrow_state(state: dict[str, Any], shape: torch.Size, cuts: list[tuple[int, tuple[int, ...]]]) -> None:
    """Cut what an optimizer keeps of one parameter of this shape, in place."""
    for key, item in state.items():
        if isinstance(item, Tensor) and follows_shape(item, shape):
            state[key] = narrowed(
                item, [(axis, kept) for axis, kept in cuts if item.shape[axis] == shape[axis]]
            )


def follows_shape(item: Tensor, shape: torch.Size) -> bool:
    """Whether an optimizer's tensor for a parameter of this shape can be cut with it.

    Factored state (Adafactor) has size 1 on the axes that it averages over.
    """
    return item.dim() == len(shape) > 0 and all(a in (1, b) for a, b in zip(item.shape, shape, strict=True))
