"""Calls that only move data, replayed on numbered elements: cutting before or after must give the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from trainonce.tracing.sizes.checks import Assignment, Check, Originals
from trainonce.tracing.sizes.survivors import Replays, Survivors
from trainonce.tracing.state.expressions import (
    Attribute,
    AxisSize,
    Operation,
    evaluate,
    leaves_of,
    map_leaves,
)
from trainonce.tracing.state.labels import Value
from trainonce.tracing.state.recording import Movement


class MovementCheck(Check):
    """Cutting before a reshape gives what cutting after it gives."""

    def __init__(self, originals: Originals, movement: Movement) -> None:
        """Replays one recorded call."""
        self.movement = movement
        touched = [item for item in leaves_of(movement.arguments) if isinstance(item, Value)] + list(
            movement.results
        )
        sources = [item for item in leaves_of(movement.arguments) if not isinstance(item, Value | Tensor)]
        name = getattr(movement.function, "__name__", "a call").strip("_")
        reason = f"{name} in {movement.where or 'the model'} takes a size that doesn't follow the cut"
        super().__init__(
            originals, movement.where, sources, [layer for value in touched for layer in value.layers], reason
        )

    def _run(self, survivors: Survivors | None, changed: Assignment) -> list[Tensor]:
        offset = 0
        total = sum(
            math.prod(item.shape) for item in leaves_of(self.movement.arguments) if isinstance(item, Value)
        )
        # Floats, because some calls know no integers; float32 counts exactly up to 2^24.
        dtype = torch.float32 if total < 2**24 else torch.float64

        def number(item: Any) -> Any:
            nonlocal offset
            if isinstance(item, Value):
                alive: Sequence[Tensor | None] = (
                    [None] * len(item.shape) if survivors is None else survivors.of_value(item)
                )
                elements = _numbered(item.shape, alive, offset + 1, dtype)
                offset += math.prod(item.shape)
                return elements
            if isinstance(item, Tensor):
                return item
            return self._size_before(item) if survivors is None else self.value_of(item, survivors, changed)

        args, kwargs = map_leaves(number, self.movement.arguments)
        result = self.movement.function(*args, **kwargs)
        return [item for item in leaves_of(result) if isinstance(item, Tensor)]

    def _size_before(self, source: Any) -> Any:
        return evaluate(source, {}, lambda leaf: leaf.value.shape[leaf.axis], self.originals)

    def _whole(self, replays: Replays) -> list[Tensor]:
        """The replay before any cut, the same for all calls that differ in their labels alone."""

        def describe(item: Any) -> Any:
            if isinstance(item, Value):
                return item.shape
            return id(item) if isinstance(item, Tensor) else self._size_before(item)

        return replays.recall(
            (self.movement.function, repr(map_leaves(describe, self.movement.arguments))),
            lambda: self._run(None, {}),
        )

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Replay on numbered elements, whole and cut."""
        try:
            whole = self._whole(survivors.replays)
            expected = [
                _cut(tensor, survivors.of_value(value))
                for tensor, value in zip(whole, self.movement.results, strict=True)
            ]
            found = self._run(survivors, changed)
        except (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError):
            return False
        # Nothing is nothing, whatever its other sizes are: no label tells those.
        return len(found) == len(expected) and all(
            torch.equal(a, b) or a.numel() == b.numel() == 0 for a, b in zip(found, expected, strict=True)
        )

    @property
    def sizes(self) -> list[Any]:
        """The integers of the call, in order, as sources."""
        return [
            item
            for item in leaves_of(self.movement.arguments)
            if isinstance(item, AxisSize | Attribute | Operation | int)
        ]

    def guess(self, survivors: Survivors) -> Assignment:
        """One size per axis of the result (view), or one per piece (split)."""
        results, sizes = self.movement.results, self.sizes
        if len(results) == 1 and len(sizes) == len(results[0].shape):
            wanted = [survivors.size(AxisSize(results[0], axis)) for axis in range(len(sizes))]
        else:
            axis = next(
                (
                    axis
                    for value in results
                    for axis, alive in enumerate(survivors.of_value(value))
                    if alive is not None
                ),
                0,
            )
            wanted = [survivors.size(AxisSize(value, axis)) for value in results]
        return {
            size: number for size, number in zip(sizes, wanted, strict=False) if isinstance(size, Attribute)
        }

    def wanted(self, survivors: Survivors) -> set[int]:
        """Any size that a result has after the cut."""
        return {
            survivors.size(AxisSize(value, axis))
            for value in self.movement.results
            for axis in range(len(value.shape))
        }

    def shares(self, survivors: Survivors) -> set[Fraction]:
        """What is left of every axis of the results that is cut."""
        return {
            Fraction(survivors.size(AxisSize(value, axis)), size)
            for value in self.movement.results
            for axis, size in enumerate(value.shape)
            if size
        } - {Fraction(1)}


def _numbered(
    shape: tuple[int, ...], alive: Sequence[Tensor | None], first: int, dtype: torch.dtype
) -> Tensor:
    """The elements of a tensor numbered through from `first`, those that are alive.

    The others are never made.
    """
    numbers, stride = torch.full((), first, dtype=dtype), 1
    for length, here in zip(reversed(shape), reversed(alive), strict=True):
        places = torch.arange(length, dtype=dtype) if here is None else here.nonzero().flatten().to(dtype)
        numbers = (places * stride).reshape(-1, *[1] * numbers.dim()) + numbers
        stride *= length
    return numbers


def _cut(tensor: Tensor, alive: list[Tensor | None]) -> Tensor:
    for axis, here in enumerate(alive):
        if here is not None:
            tensor = tensor.index_select(axis, here.nonzero().flatten())
    return tensor
