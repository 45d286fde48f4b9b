"""What must hold about sizes after a cut: arguments that follow, comparisons, sizes that may not change."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from trainonce.tracing.sizes.survivors import Survivors
from trainonce.tracing.state.expressions import Attribute, AxisSize, Comparison, Pin, evaluate, leaves
from trainonce.tracing.state.labels import Layer
from trainonce.tracing.state.recording import Demand

Assignment = dict[Attribute, int]
Originals = Mapping[Attribute, int]
"""What each attribute was before any cut."""


class Check:
    """Something about sizes that must hold after the cut."""

    def __init__(
        self, originals: Originals, where: str, sources: list[Any], layers: list[Layer], reason: str
    ) -> None:
        """A check whose sizes come from `sources`.

        If it can't be met the channels of `layers` are kept for `reason`.
        """
        self.originals = originals
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
        return evaluate(source, changed, survivors.size, self.originals)

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Whether it holds under the cut with these attributes changed."""
        raise AssertionError("each kind of check has its own way")

    def guess(self, survivors: Survivors) -> Assignment:
        """The likeliest change, tried first."""
        return {}

    def wanted(self, survivors: Survivors) -> set[int]:
        """Sizes that one of the attributes might have to take."""
        return set()

    def shares(self, survivors: Survivors) -> set[Fraction]:
        """What is left of axes that one of the attributes may be a part of."""
        return set()

    def is_touched(self, survivors: Survivors, changed: Assignment) -> bool:
        """Whether the cut can have changed anything here."""
        return any(attribute in changed for attribute in self.attributes) or self.is_cut(survivors)

    def is_cut(self, survivors: Survivors) -> bool:
        """Whether any channel that it looks at is gone."""
        return any(survivors.loses(layer) for layer in self.layers)


class DemandCheck(Check):
    """A size argument equals the number of live labels."""

    def __init__(self, originals: Originals, demand: Demand) -> None:
        """For one recorded demand."""
        super().__init__(
            originals,
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

    def __init__(self, originals: Originals, comparison: Comparison) -> None:
        """For one entry of a ledger."""
        where = comparison.where or "the model"
        sides = [comparison.left, comparison.right]
        super().__init__(originals, where, sides, [], f"{where} compares its size with another")
        self.comparison = comparison
        self.sides = sides

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Compare again."""
        sides = [self.value_of(side, survivors, changed) for side in self.sides]
        return self.comparison.function(*sides) == self.comparison.outcome

    def wanted(self, survivors: Survivors) -> set[int]:
        """What stands on the other side."""
        return {self.value_of(side, survivors, {}) for side in self.sides}


class PinCheck(Check):
    """A size that went into real arithmetic is unchanged."""

    def __init__(self, originals: Originals, pin: Pin) -> None:
        """For one entry of a ledger."""
        where = pin.where or "the model"
        super().__init__(originals, where, [pin.source], [], f"{where} computes with its size")
        self.pin = pin

    def holds(self, survivors: Survivors, changed: Assignment) -> bool:
        """Compare with what it was."""
        return self.value_of(self.pin.source, survivors, changed) == self.pin.value
