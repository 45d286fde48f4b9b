"""What operators do to channel labels: the registry of rules, and the call that a rule sees.

A rule is a function from a `Call` to the layers of its result (a list of them where the operator returns
several tensors). An operator without a rule never crashes and never cuts wrongly: the channels that reach it
are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from trainonce.errors import SettingError
from trainonce.tracing.state.labels import Layer, Value

if TYPE_CHECKING:
    from trainonce.tracing.state.tracer import Tracer

Layers = tuple[Layer, ...]
RuleFunction = Callable[["Call"], Layers | list[Layers]]
AnyRule = TypeVar("AnyRule", bound=RuleFunction)

aten = torch.ops.aten

_WORDS = {"addmm": "linear", "mm": "linear", "bmm": "matmul", "baddbmm": "matmul", "_safe_softmax": "softmax"}


@dataclass(frozen=True, slots=True)
class Rule:
    """What an operator does to labels, and what is known of the operator besides."""

    function: RuleFunction

    moves_data: bool = False
    """The operator only moves data; calls made of such operators alone are replayed to check their sizes."""

    counts_cost: bool = False
    """The operator costs multiply-adds, so the rule is applied to unlabeled data too."""

    sees_labels_alone: bool = False
    """The rule looks at no number in the call: batch norm treats labels alike in training and eval mode."""


_RULES: dict[Any, Rule] = {}
"""By overload, or by name where an operator may not be there."""


def rule(
    *operators: Any, moves_data: bool = False, counts_cost: bool = False, sees_labels_alone: bool = False
) -> Callable[[AnyRule], AnyRule]:
    """Register a function as the rule for operators; a second rule for one is refused.

    Example: `@trainonce.rule(torch.ops.aten.relu)` above a function from a call to the layers of its result.

    Args:
        operators: Each like `torch.ops.aten.relu`, one overload of it, or `"torchvision::roi_align"`.
        moves_data: The operators only move data, as `view` does.
        counts_cost: The operators cost multiply-adds, which the rule notes.
        sees_labels_alone: The rule looks at the labels of tensors and at nothing else.
    """

    def register(function: AnyRule) -> AnyRule:
        made = Rule(function, moves_data, counts_cost, sees_labels_alone)
        for overload in itertools.chain.from_iterable(_overloads(operator) for operator in operators):
            if overload in _RULES:
                known = getattr(_RULES[overload].function, "__name__", "a function")
                raise SettingError(f"{overload} already has a rule: {known}. Remove one of the two.")
            _RULES[overload] = made
        return function

    return register


def find_rule(operator: Any) -> Rule | None:
    """The rule that was registered for an operator, by itself or by its name."""
    return _RULES.get(operator) or _RULES.get(operator._schema.name)


def only_moves_data(operator: Any) -> bool:
    """Whether an operator is known to move data and do nothing else."""
    found = find_rule(operator)
    return found is not None and found.moves_data


def is_product(operator: Any) -> bool:
    """Whether an operator costs multiply-adds."""
    found = find_rule(operator)
    return found is not None and found.counts_cost


def _overloads(operator: Any) -> list[Any]:
    if isinstance(operator, str | torch._ops.OpOverload):
        return [operator]
    return [getattr(operator, name) for name in operator.overloads()]


class Call:
    """One operator call, as a rule sees it."""

    def __init__(
        self, tracer: Tracer, operator: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        """The call `operator(*args, **kwargs)`, which gave `result`."""
        self.tracer = tracer
        self.book = tracer.book
        self.operator = operator
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self.tensors = tensors_in((args, kwargs))
        """All tensor arguments, also those in lists."""
        self.sees_tables = False
        """Whether the rule is told the labels of what was computed from buffers."""

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by its name in the operator's schema."""
        if name in self.kwargs:
            return self.kwargs[name]
        for position, argument in enumerate(self.operator._schema.arguments):
            if argument.name == name:
                if position < len(self.args):
                    return self.args[position]
                return argument.default_value if argument.has_default_value() else default
        return default

    def layers(self, tensor: Any) -> Layers:
        """The layers of a tensor; none for constants and for arguments that are absent."""
        value = self.value(tensor)
        layers = value.layers if value is not None else ()
        return layers if self.sees_tables else tuple(layer for layer in layers if not layer.is_table)

    def value(self, tensor: Any) -> Value | None:
        """What is known of a tensor argument; None for constants."""
        return self.tracer.value(tensor) if isinstance(tensor, Tensor) else None

    @property
    def name(self) -> str:
        """The operator as ATen calls it."""
        return self.operator._schema.name.removeprefix("aten::")

    @property
    def words(self) -> str:
        """The operator as the user knows it, for reasons."""
        return _WORDS.get(self.name, self.name.strip("_"))

    @property
    def where(self) -> str:
        """The module that is running, for reasons."""
        return self.tracer.where() or "the model"

    def keep(self, layers: Iterable[Layer], reason: str) -> None:
        """Forbid cutting what `layers` name."""
        for layer in layers:
            self.book.keep(layer.ids, reason)

    def tie_along(self, layers: Iterable[Layer], axes: Iterable[int], reason: str) -> Layers:
        """Layers whose labels are tied along `axes`; those that vary nowhere else are kept and left out."""
        axes = tuple(axes)
        remaining = [self.book.tie_along(layer, axes, reason) for layer in layers]
        return tuple(layer for layer in remaining if layer is not None)


def tensors_in(arguments: Any) -> list[Tensor]:
    """All tensors among an operator's arguments or results, which nest in tuples, lists and dicts only."""
    if isinstance(arguments, Tensor):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, tuple | list):
        return []
    found: list[Tensor] = []
    for item in arguments:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, tuple | list | dict):
            found += tensors_in(item)
    return found


def is_strided(tensor: Tensor) -> bool:
    """Whether its axes are those of its memory; sparse and nested tensors have none to carry labels."""
    return tensor.layout is torch.strided and not tensor.is_nested


def no_rule(call: Call) -> Layers:
    """Keep every channel that reaches an operator without a rule."""
    for tensor in call.tensors:
        call.keep(call.layers(tensor), f"the operator {call.name} in {call.where} has no rule")
    return ()
