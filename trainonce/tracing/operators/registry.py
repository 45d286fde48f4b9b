"""What operators do to channel labels.

The registry, the call that a rule sees, and the rule for pointwise operators.

A rule is a function from a `Call` to the layers of its result (a list of them where the operator returns
several tensors). An operator without a rule never crashes and never cuts wrongly: the channels that reach it
are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from trainonce.tracing.state.labels import Layer, Value, align

if TYPE_CHECKING:
    from trainonce.tracing.state.tracer import Tracer

Layers = tuple[Layer, ...]
Rule = Callable[["Call"], Layers | list[Layers]]

RULES: dict[Any, Rule] = {}
MOVEMENT: set[Any] = set()
"""Operators that only move data; calls made of these alone are replayed to check their sizes."""

aten = torch.ops.aten

_WORDS = {"addmm": "linear", "mm": "linear", "bmm": "matmul", "baddbmm": "matmul", "_safe_softmax": "softmax"}


def rule(*operators: Any, moves_data: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for operators; a second rule for one is refused.

    An operator is `torch.ops.aten.relu`, one overload of it, or a name such as `"torchvision::roi_align"`.
    """

    def register(function: Rule) -> Rule:
        for overload in itertools.chain.from_iterable(_overloads(operator) for operator in operators):
            if overload in RULES:
                raise ValueError(
                    f"{overload} has a rule already: {RULES[overload].__name__}. Remove one of the two."
                )
            RULES[overload] = function
            if moves_data:
                MOVEMENT.add(overload)
        return function

    return register


def sees_labels_alone(function: Rule) -> Rule:
    """Mark a rule that looks at no number in the call.

    Batch norm in training mode does to labels what it does in eval mode.
    """
    function.sees_labels_alone = True  # type: ignore[attr-defined]
    return function


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
        return value.layers if value is not None else ()

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
    """All tensors among the arguments or results of an operator, which nest in tuples, lists and dicts only."""
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


def no_rule(call: Call) -> Layers:
    """Keep every channel that reaches an operator nobody has explained."""
    for tensor in call.tensors:
        call.keep(call.layers(tensor), f"the operator {call.name} in {call.where} has no rule")
    return ()


def pointwise(call: Call) -> Layers:
    """Labels that meet are tied; whether zero stays zero is found by trying the operator on zeros."""
    operands = call.tensors
    num_axes = max((tensor.dim() for tensor in operands), default=0)
    extents = [(1,) * (num_axes - tensor.dim()) + tuple(tensor.shape) for tensor in operands]
    aligned = [[align(layer, num_axes) for layer in call.layers(tensor)] for tensor in operands]
    aligned = [_meet(call, number, extents, aligned) for number in range(len(operands))]
    clusters: list[dict[int, Layer]] = []
    for number, layers in enumerate(aligned):
        for layer in layers:
            home = next(
                (cluster for cluster in clusters if number not in cluster and _overlap(cluster, layer)), None
            )
            if home is None:
                clusters.append({number: layer})
            else:
                home[number] = layer
    return tuple(_merge(call, cluster, operands) for cluster in clusters)


def _overlap(cluster: dict[int, Layer], layer: Layer) -> bool:
    return any(set(other.varying) & set(layer.varying) for other in cluster.values())


def _meet(call: Call, number: int, extents: list[tuple[int, ...]], aligned: list[list[Layer]]) -> list[Layer]:
    """The layers of one operand, tied to those of the others, and frozen along axes that others fill without labels."""
    reason = f"{call.words} in {call.where} combines it with a tensor whose channels can't be cut"
    met: list[Layer] = []
    for layer in aligned[number]:
        current: Layer | None = layer
        for other, extent in enumerate(extents):
            if other == number or current is None:
                continue
            full = [axis for axis in current.varying if extent[axis] > 1]
            partners = [partner for partner in aligned[other] if set(partner.varying) & set(full)]
            covered = {axis for partner in partners for axis in partner.varying}
            current = (
                call.book.tie_along(current, [axis for axis in full if axis not in covered], reason)
                if full
                else current
            )
            if current is not None:
                for partner in partners:
                    call.book.tie(current.ids, partner.ids, reason)
        if current is not None:
            met.append(current)
    return met


def _merge(call: Call, cluster: dict[int, Layer], operands: list[Tensor]) -> Layer:
    shape = torch.broadcast_shapes(*(layer.ids.shape for layer in cluster.values()))
    roots = torch.stack([call.book.roots(layer.ids).abs().expand(shape) for layer in cluster.values()]).amax(
        dim=0
    )
    silent = {number: (layer.ids > 0).expand(shape) for number, layer in cluster.items()}
    signs = torch.full(shape, -1)
    for pattern in itertools.product((True, False), repeat=len(cluster)):
        if not any(pattern):
            continue
        match = torch.ones(shape, dtype=torch.bool)
        for number, is_silent in zip(cluster, pattern, strict=True):
            match &= silent[number] if is_silent else ~silent[number]
        if bool(match.any()):
            zeroed = {number for number, is_silent in zip(cluster, pattern, strict=True) if is_silent}
            outcome = _outcome_at_zero(call, zeroed, operands)
            if outcome == 0:
                signs[match] = 1
            elif outcome != outcome:
                for number in zeroed:
                    call.tracer.recording.followers |= cluster[number].origins
    origins = frozenset().union(*(layer.origins for layer in cluster.values()))
    return Layer(roots * signs, origins)


def _outcome_at_zero(call: Call, zeroed: set[int], operands: list[Tensor]) -> float:
    """0 if the operator gives zero whenever the operands in `zeroed` are zero.

    NaN if it is undefined there; else 1.
    """
    trials = [[0.0] if number in zeroed else _trial_values(tensor) for number, tensor in enumerate(operands)]
    for numbers in itertools.product(*trials):
        outcome = _outcome(
            call, [_scalar(number, tensor) for number, tensor in zip(numbers, operands, strict=True)]
        )
        if bool(torch.isnan(outcome)):
            return float("nan")
        if outcome != 0:
            return 1.0
    return 0.0


def _outcome(call: Call, operands: list[Tensor]) -> Tensor:
    """The operator on other tensors, with the scalars that it was called with."""
    waiting = iter(operands)
    args, kwargs = tree_map_only(Tensor, lambda _: next(waiting), (tuple(call.args), call.kwargs))
    return call.operator(*args, **kwargs)


def _scalar(number: float, like: Tensor) -> Tensor:
    if like.is_complex():
        return torch.tensor(number, dtype=torch.complex128)
    return torch.tensor(number, dtype=torch.double if like.is_floating_point() else like.dtype)


def _trial_values(tensor: Tensor) -> list[float]:
    if tensor.dtype is torch.bool:
        return [0.0, 1.0]
    return [-1.3, 0.7, 2.0] if tensor.is_floating_point() else [0.0, 1.0, 2.0]
