"""What must hold about sizes after a cut.

Replayed movements, demands on arguments, comparisons, sizes that may not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainonce.tracing.state.expressions import (
    Attribute,
    AxisSize,
    Operation,
    evaluate,
    leaves,
    leaves_of,
    map_leaves,
)
from trainonce.tracing.state.labels import LabelBook, Layer, Value
from trainonce.tracing.state.recording import Demand, Movement, Recording

Assignment = dict[Attribute, int]


class Replays:
    """Results of calls on numbered elements, remembered while there is room."""

    MOST_ELEMENTS = 10_000_000

    def __init__(self) -> None:
        """Nothing remembered yet."""
        self._known: dict[Hashable, list[Tensor]] = {}
        self._num_elements = 0

    def recall(self, question: Hashable, run: Callable[[], list[Tensor]]) -> list[Tensor]:
        """What `run` gave when the question was asked before; the oldest answers are forgotten first."""
        if question not in self._known:
            self._known[question] = run()
            self._num_elements += sum(map(Tensor.numel, self._known[question]))
            while self._num_elements > self.MOST_ELEMENTS and len(self._known) > 1:
                self._num_elements -= sum(map(Tensor.numel, self._known.pop(next(iter(self._known)))))
        return self._known[question]


class Survivors:
    """Which positions of each recorded tensor are alive under one choice of channels."""

    def __init__(
        self, recording: Recording, channel_of_label: Tensor, alive: Tensor, replays: Replays
    ) -> None:
        """`alive` has one entry per channel and a last True for labels that belong to none."""
        self.recording = recording
        self.replays = replays
        self._alive_label = alive[channel_of_label]
        self._known: dict[int, list[Tensor | None]] = {}
        self._known_layers: dict[int, tuple[Tensor, bool]] = {}

    def of_layer(self, layer: Layer) -> Tensor:
        """For each entry of a layer, whether it is alive."""
        return self._of_layer(layer)[0]

    def loses(self, layer: Layer) -> bool:
        """Whether any entry of a layer is gone."""
        return self._of_layer(layer)[1]

    def _of_layer(self, layer: Layer) -> tuple[Tensor, bool]:
        if id(layer) not in self._known_layers:
            # Labels that are tied belong to the same channel: no need to look for their roots.
            alive = self._alive_label[layer.ids.abs()]
            self._known_layers[id(layer)] = (alive, not bool(alive.all()))
        return self._known_layers[id(layer)]

    def of_value(self, value: Value) -> list[Tensor | None]:
        """For each axis, which positions are alive; None where all are."""
        if id(value) not in self._known:
            axes: list[Tensor | None] = [None] * len(value.shape)
            for layer in value.layers:
                alive, loses = self._of_layer(layer)
                for axis in layer.varying if loses else ():
                    others = [other for other in range(alive.dim()) if other != axis]
                    here = alive.amax(dim=others).expand(value.shape[axis]) if others else alive
                    if not bool(here.all()):
                        known = axes[axis]
                        axes[axis] = here if known is None else known & here
            self._known[id(value)] = axes
        return self._known[id(value)]

    def size(self, leaf: AxisSize) -> int:
        """The size of an axis after the cut."""
        alive = self.of_value(leaf.value)[leaf.axis]
        return leaf.value.shape[leaf.axis] if alive is None else int(alive.sum())

    def is_cut(self, value: Value) -> bool:
        """Whether the tensor loses anything."""
        return any(alive is not None for alive in self.of_value(value))


class Check:
    """Something about sizes that must hold after the cut."""

    def __init__(
        self, recording: Recording, where: str, sources: list[Any], layers: list[Layer], reason: str
    ) -> None:
        """A check whose sizes come from `sources`.

        If it can't be met the channels of `layers` are kept for `reason`.
        """
        self.recording = recording
        self.where = where or "the model"
        self.attributes = list(
            dict.fromkeys(
                leaf for source in sources for leaf in leaves(source) if isinstance(leaf, Attribute)
            )
        )
        self.axis_sizes = [
            leaf for source in sources for leaf in leaves(source) if isinstance(leaf, AxisSize)
        ]
        self.layers = layers + [
            layer for leaf in self.axis_sizes for layer in leaf.value.layers if leaf.axis in layer.varying
        ]
        self.reason = reason

    def value_of(self, source: Any, survivors: Survivors, changed: Assignment) -> Any:
        """An expression after the cut."""
        return evaluate(source, changed, survivors.size, self.recording.originals)

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Whether it holds under the cut with these attributes changed."""
        raise AssertionError("each kind of check has its own way")

    def guess(self, survivors: Survivors) -> Assignment:
        """The likeliest change, tried first."""
        return {}

    def mend(self) -> bool:
        """Tie channels so that the check can hold; False if there is no way."""
        return False

    def wanted(self, survivors: Survivors) -> set[int]:
        """Sizes that one of the attributes might have to take."""
        return set()

    def is_touched(self, survivors: Survivors, changed: Assignment) -> bool:
        """Whether the cut can have changed anything here."""
        return any(attribute in changed for attribute in self.attributes) or self.is_cut(survivors)

    def is_cut(self, survivors: Survivors) -> bool:
        """Whether any channel that it looks at is gone."""
        return any(survivors.loses(layer) for layer in self.layers)


class MovementCheck(Check):
    """Cutting before a reshape gives what cutting after it gives."""

    def __init__(self, recording: Recording, movement: Movement) -> None:
        """Replays one recorded call."""
        self.movement = movement
        touched = [item for item in leaves_of(movement.arguments) if isinstance(item, Value)] + list(
            movement.results
        )
        sources = [item for item in leaves_of(movement.arguments) if not isinstance(item, Value | Tensor)]
        name = getattr(movement.function, "__name__", "a call").strip("_")
        reason = f"{name} in {movement.where or 'the model'} takes a size that doesn't follow the cut"
        super().__init__(
            recording, movement.where, sources, [layer for value in touched for layer in value.layers], reason
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
        return evaluate(source, {}, lambda leaf: leaf.value.shape[leaf.axis], self.recording.originals)

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
        return len(found) == len(expected) and all(
            torch.equal(a, b) for a, b in zip(found, expected, strict=True)
        )

    @property
    def _sizes(self) -> list[Any]:
        """The integers of the call, in order, as sources."""
        return [
            item
            for item in leaves_of(self.movement.arguments)
            if isinstance(item, AxisSize | Attribute | Operation | int)
        ]

    def guess(self, survivors: Survivors) -> Assignment:
        """One size per axis of the result (view), or one per piece (split)."""
        results, sizes = self.movement.results, self._sizes
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

    def mend(self) -> bool:
        """Pieces of one tensor lose the same.

        A size taken from another tensor ties the result to that tensor.
        """
        book, results = self.recording.book, self.movement.results
        before = book.num_ties
        for other in results[1:]:
            if other.shape == results[0].shape:
                _tie_layers(
                    book, [(results[0], axis, other, axis) for axis in range(len(other.shape))], self.reason
                )
        sizes = self._sizes
        if len(results) == 1 and len(sizes) == len(results[0].shape):
            _tie_layers(
                book,
                [
                    (results[0], axis, size.value, size.axis)
                    for axis, size in enumerate(sizes)
                    if isinstance(size, AxisSize)
                ],
                self.reason,
            )
        return book.num_ties > before

    def wanted(self, survivors: Survivors) -> set[int]:
        """Any size that a result has after the cut."""
        return {
            survivors.size(AxisSize(value, axis))
            for value in self.movement.results
            for axis in range(len(value.shape))
        }


class DemandCheck(Check):
    """A size argument equals the number of live labels."""

    def __init__(self, recording: Recording, demand: Demand) -> None:
        """For one recorded demand."""
        super().__init__(
            recording,
            demand.where,
            [demand.source],
            [demand.layer],
            f"{demand.what} in {demand.where or 'the model'} doesn't follow the cut",
        )
        self.demand = demand

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Compare."""
        return self.value_of(self.demand.source, survivors, changed) in self.wanted(survivors)

    def wanted(self, survivors: Survivors) -> set[int]:
        """Exactly one number."""
        return {int(survivors.of_layer(self.demand.layer).sum())}


class ComparisonCheck(Check):
    """A comparison of sizes that the model made comes out as it did."""

    def __init__(self, recording: Recording, comparison: tuple[Any, Any, Any, bool, str]) -> None:
        """For one entry of a ledger."""
        self.function, self.left, self.right, self.outcome, where = comparison
        super().__init__(
            recording,
            where,
            [self.left, self.right],
            [],
            f"{where or 'the model'} compares its size with another",
        )

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Compare again."""
        return (
            self.function(
                self.value_of(self.left, survivors, changed), self.value_of(self.right, survivors, changed)
            )
            == self.outcome
        )

    def wanted(self, survivors: Survivors) -> set[int]:
        """What stands on the other side."""
        return {self.value_of(side, survivors, {}) for side in (self.left, self.right)}


class PinnedCheck(Check):
    """A size that went into real arithmetic is unchanged."""

    def __init__(self, recording: Recording, pinned: tuple[Any, int, str]) -> None:
        """For one entry of a ledger."""
        self.source, self.expected, where = pinned
        super().__init__(
            recording, where, [self.source], [], f"{where or 'the model'} computes with its size"
        )

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Compare with what it was."""
        return self.value_of(self.source, survivors, changed) == self.expected


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


def _tie_layers(book: LabelBook, pairs: list[tuple[Value, int, Value, int]], reason: str) -> None:
    """Tie the labels of two tensors along one axis of each, where both vary along it alone and are as long."""
    for left, left_axis, right, right_axis in pairs:
        if left.shape[left_axis] != right.shape[right_axis]:
            continue
        for mine in (layer for layer in left.layers if layer.varying == (left_axis,)):
            for other in (layer for layer in right.layers if layer.varying == (right_axis,)):
                book.tie(mine.ids.flatten(), other.ids.flatten(), reason)
