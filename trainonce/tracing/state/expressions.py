"""Integers that remember where they come from, so that a size in a reshape can be traced to its source.

While a model is recorded, its integer attributes and the shapes of its tensors are `TracedInt`s: they are
ordinary integers to everybody, and carry an expression over attributes and shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainonce.tracing.state.labels import Value


@dataclass(frozen=True, slots=True)
class Attribute:
    """An integer that a module remembers: `blocks.0.attn.num_heads`, or entry `index` of a tuple."""

    module: str
    name: str
    index: int | None

    def __str__(self) -> str:
        """As a person would write it."""
        where = f"{self.module}.{self.name}" if self.module else self.name
        return where if self.index is None else f"{where}[{self.index}]"


@dataclass(frozen=True, slots=True, eq=False)
class AxisSize:
    """The size of one axis of a tensor that the model has seen."""

    value: Value
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """Integer arithmetic on sources and literals."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]


Source = Attribute | AxisSize | Operation


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Two sizes that the model compared: it must come out the same after a cut."""

    where: str
    function: Callable[..., bool]
    left: Any
    right: Any
    outcome: bool


@dataclass(frozen=True, slots=True, eq=False)
class Pin:
    """A size that went into real arithmetic (`head_dim ** -0.5`): its value must not change."""

    where: str
    source: Source
    value: int


@dataclass(eq=False)
class Ledger:
    """What a recorded run did with traced integers besides passing them to operators."""

    where: Callable[[], str]
    """Names the module that is running."""

    is_open: bool = True
    comparisons: list[Comparison] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)

    def pin(self, source: Source, value: int) -> None:
        """Note that a size must not change."""
        self.pins.append(Pin(self.where(), source, value))


class TracedInt(int):
    """An integer with its source."""

    source: Source
    ledger: Ledger

    def __new__(cls, value: int, source: Source, ledger: Ledger) -> TracedInt:
        """`value`, as computed by `source` in the run that `ledger` belongs to."""
        traced = super().__new__(cls, value)
        traced.source = source
        traced.ledger = ledger
        return traced

    def _pin(self) -> int:
        if self.ledger.is_open:
            self.ledger.pin(self.source, int.__int__(self))
        return int.__int__(self)

    def __float__(self) -> float:
        """Leaves the integers: the value must stay."""
        return float(self._pin())

    def __int__(self) -> int:
        """Leaves the traced integers: the value must stay."""
        return self._pin()

    def __divmod__(self, other: Any) -> Any:
        """Leaves the traced integers: the value must stay."""
        return divmod(self._pin(), other)

    def __truediv__(self, other: Any) -> Any:
        """Leaves the integers: the value must stay."""
        return self._pin() / other

    def __rtruediv__(self, other: Any) -> Any:
        """Leaves the integers: the value must stay."""
        return other / self._pin()

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        """Leaves the integers: the value must stay."""
        return pow(self._pin(), other, modulo)

    def __hash__(self) -> int:
        """As the plain integer."""
        return int.__hash__(self)

    def __reduce__(self) -> Any:
        """Copies and pickles as a plain integer."""
        return int, (int.__int__(self),)

    def __deepcopy__(self, memo: Any) -> int:
        """A plain integer."""
        return int.__int__(self)


def _arithmetic(function: Callable[..., Any], *, reflected: bool) -> Callable[[TracedInt, Any], Any]:
    def method(self: TracedInt, other: Any) -> Any:
        if isinstance(other, bool) or not isinstance(other, int):
            if isinstance(other, float):
                plain = self._pin()
                return function(other, plain) if reflected else function(plain, other)
            return NotImplemented
        left, right = (other, self) if reflected else (self, other)
        value = function(int.__int__(left), int.__int__(right))
        return (
            TracedInt(value, Operation(function, (source_of(left), source_of(right))), self.ledger)
            if self.ledger.is_open
            else value
        )

    return method


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[[TracedInt, Any], Any]:
    def method(self: TracedInt, other: Any) -> Any:
        if not isinstance(other, int):
            return function(self._pin(), other) if isinstance(other, float) else NotImplemented
        outcome = function(int.__int__(self), int.__int__(other))
        if self.ledger.is_open:
            self.ledger.comparisons.append(
                Comparison(self.ledger.where(), function, self.source, source_of(other), outcome)
            )
        return outcome

    return method


def _leaving(function: Callable[[int, Any], Any]) -> Callable[[TracedInt, Any], Any]:
    """A way out of the traced integers: the value must stay."""

    def method(self: TracedInt, other: Any) -> Any:
        return function(self._pin(), other)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(TracedInt, f"__{_name}__", _arithmetic(getattr(operator, _name), reflected=False))
    setattr(TracedInt, f"__r{_name}__", _arithmetic(getattr(operator, _name), reflected=True))
for _name in ("and", "or", "xor", "lshift", "rshift"):
    setattr(
        TracedInt,
        f"__{_name}__",
        _leaving(getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)),
    )
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(TracedInt, f"__{_name}__", _comparison(getattr(operator, _name)))


def _negated(self: TracedInt) -> int:
    value = -int.__int__(self)
    return (
        TracedInt(value, Operation(operator.neg, (self.source,)), self.ledger)
        if self.ledger.is_open
        else value
    )


TracedInt.__neg__ = _negated  # type: ignore[method-assign]


def source_of(number: Any) -> Any:
    """The expression behind an integer; a literal stands for itself."""
    return number.source if isinstance(number, TracedInt) and number.ledger.is_open else number


def evaluate(
    source: Any,
    attributes: Mapping[Attribute, int],
    axis_size: Callable[[AxisSize], int],
    original: Mapping[Attribute, int],
) -> Any:
    """The value of an expression with some attributes changed and the axes at their new sizes."""
    if isinstance(source, Attribute):
        return attributes.get(source, original[source])
    if isinstance(source, AxisSize):
        return axis_size(source)
    if isinstance(source, Operation):
        return source.function(
            *(evaluate(operand, attributes, axis_size, original) for operand in source.operands)
        )
    return source


def leaves(source: Any) -> Iterator[Attribute | AxisSize]:
    """The attributes and axis sizes that an expression reads."""
    if isinstance(source, Attribute | AxisSize):
        yield source
    elif isinstance(source, Operation):
        for operand in source.operands:
            yield from leaves(operand)


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """The tree of arguments with every leaf changed; looks into tuples, lists, dicts, sizes and slices."""
    if isinstance(tree, tuple | list):
        mapped = [map_leaves(change, item) for item in tree]
        return mapped if isinstance(tree, list) else tuple(mapped)
    if isinstance(tree, dict):
        return {key: map_leaves(change, item) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(map_leaves(change, item) for item in (tree.start, tree.stop, tree.step)))
    return change(tree)


def leaves_of(tree: Any) -> list[Any]:
    """Every leaf of a tree of arguments."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found
