"""Calling models and comparing what they return: examples of any shape in, one number out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import trainonce
from trainonce.structure.channels import Example

SEED = 0


def call(model: nn.Module, example: Example) -> Any:
    """What the model returns for the example; random numbers start from the same seed each time."""
    torch.manual_seed(SEED)
    if isinstance(example, dict):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


def reason_of(error: BaseException, *, longest: int = 200) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:longest]


def warm_up() -> None:
    """Pay for imports and caches that the first inspection of a process pays for all."""
    trainonce.inspect(tiny_model(), torch.zeros(1, 4))


def tiny_model() -> nn.Module:
    """To be called with zeros of shape (1, 4)."""
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def as_inputs(example: Example) -> Any:
    """A tensor alone as a tuple; anything else as it is."""
    return (example,) if isinstance(example, Tensor) else example


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nest of tuples, lists and dicts with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: map_tensors(change, item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(change, item) for item in value)
    return value


def in_precision(example: Example, dtype: torch.dtype) -> Example:
    """The example with its floating tensors in `dtype`; whole numbers stay what they are."""
    return map_tensors(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, example)


def flatten(outputs: Any) -> Iterator[Tensor]:
    """Every tensor that a model returned, in order; anything else, such as None, is left out."""
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, Mapping):
        for item in outputs.values():
            yield from flatten(item)
    elif isinstance(outputs, (tuple, list)):
        for item in outputs:
            yield from flatten(item)


def run_quietly(model: nn.Module, example: Example) -> list[Tensor]:
    """The outputs in eval mode, without gradients, as tensors of their own.

    The model gets a copy of the example: some write into their input.
    """
    with torch.no_grad():
        return [tensor.clone() for tensor in flatten(call(model, map_tensors(Tensor.clone, example)))]


def largest_difference(before: list[Tensor], after: list[Tensor]) -> float:
    """The largest difference of any output relative to that output's largest value.

    Infinite if they don't fit at all.

        max_o  max |after_o - before_o| / max |before_o|

    Whole numbers must be equal. A value that is not finite must be the same in both.
    """
    if [tensor.shape for tensor in before] != [tensor.shape for tensor in after]:
        return float("inf")
    largest = 0.0
    for old, new in zip(before, after, strict=True):
        if not old.is_floating_point():
            largest = max(largest, 0.0 if torch.equal(old, new) else float("inf"))
            continue
        finite = old.isfinite()
        if not torch.equal(finite, new.isfinite()) or not torch.equal(
            old[~finite].nan_to_num(), new[~finite].nan_to_num()
        ):
            return float("inf")
        if bool(finite.any()):
            scale = old[finite].abs().max().clamp_min(torch.finfo(old.dtype).tiny)
            largest = max(largest, float((new[finite] - old[finite]).abs().max() / scale))
    return largest


def share_not_finite(outputs: list[Tensor]) -> float:
    """Which part of the floating outputs is infinite or not a number."""
    values = [tensor for tensor in outputs if tensor.is_floating_point()]
    total = sum(tensor.numel() for tensor in values)
    return sum(int((~tensor.isfinite()).sum()) for tensor in values) / total if total else 0.0
