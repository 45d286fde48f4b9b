"""All that must hold about sizes after a cut, as plain data, and which attributes a cut changes.

Takes a recording; what comes out of `in_channels` holds no tensor of it, can be pickled and compared, and is
what a partition carries.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import PlanError
from trainonce.structure.channels import AttributeChange
from trainonce.structure.equality import ComparedByContent
from trainonce.tracing.sizes.checks import Check, ComparisonCheck, DemandCheck, Originals, PinCheck
from trainonce.tracing.sizes.movements import MovementCheck
from trainonce.tracing.sizes.solver import attribute_changes, solve
from trainonce.tracing.sizes.survivors import Replays, Survivors
from trainonce.tracing.state.expressions import (
    AxisSize,
    Comparison,
    Operation,
    Pin,
    leaves_of,
    map_leaves,
)
from trainonce.tracing.state.labels import Layer, Value
from trainonce.tracing.state.recording import Demand, Movement, Recording

Rule = Demand | Movement | Comparison | Pin


@dataclass(frozen=True, slots=True, eq=False)
class SizeRules(ComparedByContent):
    """What must hold about sizes after a cut."""

    rules: tuple[Rule, ...]
    """In the order in which attributes are best found."""

    originals: Originals

    @classmethod
    def of(cls, recording: Recording) -> SizeRules:
        """Everything that a recording shows; tensors carry the recording's labels."""
        rules: list[Rule] = list(recording.demands)
        # The run in training mode repeats most of what the first run has shown.
        rules += {_content(movement, recording): movement for movement in recording.movements}.values()
        for ledger in recording.ledgers:
            rules += [*ledger.comparisons, *ledger.pins]
        return cls(tuple(rules), recording.originals)

    def checks(self) -> list[Check]:
        """One check per rule that has something to check."""
        found = [_check(rule, self.originals) for rule in self.rules]
        return [check for check in found if check.layers or check.attributes]

    def changes(self, alive: Tensor) -> tuple[AttributeChange, ...]:
        """The attributes that must change; PlanError if the choice contradicts a size in the model.

        For rules in channels: `alive` has one boolean per channel of the partition.
        """
        survivors = Survivors(torch.cat([torch.ones(1, dtype=torch.bool), alive]), Replays())
        changed, failed = solve(self.checks(), survivors)
        if failed:
            raise PlanError(
                f"these masks don't fit the model: {failed[0].reason}. Keep the group whole, or as many "
                "channels in each part."
            )
        return attribute_changes(changed, self.originals)

    def in_channels(self, channel_of_label: Tensor) -> SizeRules:
        """The same rules on channels: entry c + 1 stands for channel c, and 0 for what is never cut.

        Rules that no cut can touch are left out.
        """
        translated = _Translation(channel_of_label + 1)
        rules = [translated.rule(rule) for rule in self.rules]
        checks = [_check(rule, self.originals) for rule in rules]
        touched = set(_touched(checks))
        attributes = {attribute for check in touched for attribute in check.attributes}
        return SizeRules(
            tuple(rule for rule, check in zip(rules, checks, strict=True) if check in touched),
            {attribute: number for attribute, number in self.originals.items() if attribute in attributes},
        )


def _touched(checks: list[Check]) -> list[Check]:
    """The checks that a cut can touch: by a channel, or by an attribute that another of them may change."""
    touched = [check for check in checks if any(bool(layer.ids.any()) for layer in check.layers)]
    waiting = [check for check in checks if check not in set(touched)]
    while True:
        attributes = {attribute for check in touched for attribute in check.attributes}
        reached = [check for check in waiting if not attributes.isdisjoint(check.attributes)]
        if not reached:
            return touched
        touched += reached
        waiting = [check for check in waiting if check not in set(reached)]


def _check(rule: Rule, originals: Originals) -> Check:
    if isinstance(rule, Demand):
        return DemandCheck(originals, rule)
    if isinstance(rule, Movement):
        return MovementCheck(originals, rule)
    if isinstance(rule, Comparison):
        return ComparisonCheck(originals, rule)
    return PinCheck(originals, rule)


class _Translation:
    """Rules with other labels: tensors that were shared stay shared, and none is one of the recording's."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._known: dict[int, Any] = {}

    def rule(self, rule: Rule) -> Rule:
        if isinstance(rule, Demand):
            return replace(rule, source=self._item(rule.source), layer=self._layer(rule.layer))
        if isinstance(rule, Movement):
            return replace(
                rule,
                arguments=map_leaves(self._item, rule.arguments),
                results=tuple(self._item(value) for value in rule.results),
            )
        if isinstance(rule, Comparison):
            return replace(rule, left=self._item(rule.left), right=self._item(rule.right))
        return replace(rule, source=self._item(rule.source))

    def _item(self, item: Any) -> Any:
        if not isinstance(item, Value | AxisSize | Operation | Tensor):
            return item
        if id(item) not in self._known:
            self._known[id(item)] = self._translated(item)
        return self._known[id(item)]

    def _translated(self, item: Value | AxisSize | Operation | Tensor) -> Any:
        if isinstance(item, Value):
            layers = [self._layer(layer) for layer in item.layers]
            return replace(item, layers=tuple(layer for layer in layers if bool(layer.ids.any())))
        if isinstance(item, AxisSize):
            return AxisSize(self._item(item.value), item.axis)
        if isinstance(item, Operation):
            return Operation(item.function, tuple(map(self._item, item.operands)))
        return item.detach().clone()

    def _layer(self, layer: Layer) -> Layer:
        if id(layer) not in self._known:
            self._known[id(layer)] = Layer(self._numbers[layer.ids.abs()])
        return self._known[id(layer)]


def _digest(labels: Tensor) -> bytes:
    """Equal for equal labels only; spelled out they would fill the memory."""
    return hashlib.blake2b(labels.numpy().tobytes(), digest_size=16).digest()


def _content(movement: Movement, recording: Recording) -> tuple[Any, ...]:
    """What a movement is about, equal for two that ask the same."""

    def content(item: Any) -> Any:
        if isinstance(item, Value):
            return (
                item.shape,
                *(
                    (tuple(layer.ids.shape), _digest(recording.book.roots(layer.ids)))
                    for layer in item.layers
                ),
            )
        if isinstance(item, AxisSize):
            return (content(item.value), item.axis)
        if isinstance(item, Operation):
            return (item.function, *map(content, item.operands))
        return id(item) if isinstance(item, Tensor) else item

    return (
        movement.where,
        movement.function,
        repr([content(item) for item in leaves_of(movement.arguments)]),
    )
