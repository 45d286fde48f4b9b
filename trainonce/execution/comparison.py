"""How far apart two results are, as numbers that a NaN can't hide in.

`max(0.0, nan)` is 0.0 and `nan > tolerance` is False, so an ad hoc comparison calls a broken model equal.
Every comparison of outputs in this package is the one below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SMALLEST_SCALE = 1e-30


@dataclass(frozen=True, slots=True)
class Difference:
    """Between a reference and what should be equal to it."""

    largest: float = 0.0
    """Between two numbers in the same place.

    Infinite if shapes differ, or if one of the two is NaN or infinite and the other is not the same.
    """

    scale: float = 0.0
    """The largest finite magnitude in the reference."""

    num_compared: int = 0
    """Places that hold a number on both sides, infinities included."""

    num_nan: int = 0
    """Places that hold NaN on both sides. They say nothing: two broken models are not equal models."""

    @property
    def relative(self) -> float:
        """`largest` as a share of `scale`; infinite if there is nothing but NaN to compare. Never NaN."""
        if self.num_nan and not self.num_compared:
            return float("inf")
        return self.largest / max(self.scale, SMALLEST_SCALE) if self.largest else 0.0

    def __or__(self, other: Difference) -> Difference:
        """The difference of both together, as if they were parts of one result."""
        return Difference(
            largest=max(self.largest, other.largest),
            scale=max(self.scale, other.scale),
            num_compared=self.num_compared + other.num_compared,
            num_nan=self.num_nan + other.num_nan,
        )


APART = Difference(largest=float("inf"))


def compare(reference: Tensor, found: Tensor) -> Difference:
    """The difference of one tensor; tensors without data (on the meta device) have none."""
    if reference.shape != found.shape:
        return APART
    if reference.is_meta or reference.numel() == 0:
        return Difference()
    if not (_is_inexact(reference) and _is_inexact(found)):
        is_same = reference.dtype == found.dtype and torch.equal(reference, found)
        return Difference(largest=0.0 if is_same else float("inf"), num_compared=reference.numel())
    wide = torch.complex128 if reference.is_complex() or found.is_complex() else torch.float64
    one, other = (tensor.detach().to("cpu", wide).flatten() for tensor in (reference, found))
    are_nan = one.isnan() & other.isnan()
    are_finite = one.isfinite() & other.isfinite()
    counts = {"num_compared": int((~are_nan).sum()), "num_nan": int(are_nan.sum())}
    finite = one[are_finite]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    # What is left must be equal to the last bit: the same infinity on both sides.
    rest = ~(are_finite | are_nan)
    if not torch.equal(one[rest], other[rest]):
        return Difference(largest=float("inf"), scale=scale, **counts)
    largest = float((finite - other[are_finite]).abs().max()) if finite.numel() else 0.0
    return Difference(largest=largest, scale=scale, **counts)


def relative_difference(reference: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    """The largest `relative` of two lists of tensors, each measured by its own scale.

    Infinite if their numbers differ.
    """
    if len(reference) != len(found):
        return float("inf")
    return max(
        (compare(one, other).relative for one, other in zip(reference, found, strict=True)), default=0.0
    )


def can_be_compared(reference: Sequence[Tensor]) -> bool:
    """Whether no tensor is NaN throughout.

    Everything is infinitely far from one that is.
    """
    return relative_difference(reference, reference) == 0.0


def first_not_finite(model: nn.Module) -> str | None:
    """The name of the first parameter that holds NaN or an infinity; None if all are finite."""
    for name, parameter in model.named_parameters():
        if not parameter.is_meta and _is_inexact(parameter) and not bool(parameter.detach().isfinite().all()):
            return name
    return None


def first_nan_buffer(model: nn.Module) -> str | None:
    """The name of the first buffer that holds NaN; None if there is none.

    Infinities are no fault: masks are made of them.
    """
    for name, buffer in model.named_buffers():
        if not buffer.is_meta and _is_inexact(buffer) and bool(buffer.isnan().any()):
            return name
    return None


def _is_inexact(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
