"""From scores to masks that keep a promise.

At or below the budget, close to it, on round widths, no group emptied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainonce.errors import BudgetError
from trainonce.pruning.ranking import Ranking
from trainonce.pruning.units import Units
from trainonce.structure.cost import Meter

WIDEST_ROUNDING = 16
"""Widths that are multiples of 16 fill the vector units of CPUs and GPUs.

Odd ones can make a smaller model slower.
"""

CLOSE_ENOUGH = 0.005
"""The share of the whole model that may be left unused before finer steps than the rounding are taken."""

CLOSE_ENOUGH_OF_BUDGET = 0.01
"""The same as a share of the budget, which is less where the budget is below half of the model."""

FULL = 0.0005
"""A budget this close to used up is left alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """How much of the whole model may stay, and how to count it."""

    units: Units
    meter: Meter
    total: float
    share: float
    roundings: Tensor
    """Per group, the number that its width should be a multiple of."""

    word: str
    """What is counted, for messages: FLOPs or parameters."""

    available: Tensor
    """The units that may stay; what an earlier decision has dropped may not."""

    required: Tensor
    """The units that must stay as long as they are available: their weights are frozen.

    Always whole groups.
    """

    @classmethod
    def of_flops(cls, units: Units, share: float, round_to: int | None) -> Budget:
        """A share of the whole model's multiply-adds."""
        return cls._checked(units, Meter.of(units.partition.contractions), share, round_to, "keep_flops")

    @classmethod
    def of_parameters(cls, units: Units, share: float, round_to: int | None) -> Budget:
        """A share of the whole model's parameters."""
        return cls._checked(units, Meter.of(units.partition.tensor_sizes), share, round_to, "keep_params")

    @classmethod
    def _checked(cls, units: Units, meter: Meter, share: float, round_to: int | None, word: str) -> Budget:
        check_share(word, share)
        if round_to is not None and (
            not isinstance(round_to, int) or isinstance(round_to, bool) or round_to < 1
        ):
            raise BudgetError(
                f"round_to must be a whole number from 1 on, got {round_to!r}. None chooses by width, 1 "
                "means any width."
            )
        if not len(units):
            raise BudgetError(
                f"{word}={share} has nothing to act on: no channel of this model may be cut. "
                f"{units.why_kept()}"
            )
        total = float(meter(units.alive(torch.ones(len(units)))))
        if total == 0:
            raise BudgetError(
                f"{word} has nothing to count: the model has no multiply-adds on this example. Give "
                "keep_params instead."
            )
        roundings = torch.tensor(
            [_rounding(group.num_channels, group.width, round_to) for group in units.groups], dtype=torch.long
        )
        ones = torch.ones(len(units), dtype=torch.bool)
        budget = cls(units, meter, total, float(share), roundings, word, available=ones, required=~ones)
        smallest = budget.share_of(budget.least())
        if share < smallest:
            raise BudgetError(
                f"{word}={share} can't be reached: with one channel left in every group that may be cut, "
                f"{smallest:.4f} remains. "
                f"{units.why_kept()} Ask for {_up(smallest)} to 1."
            )
        return budget

    def within(self, masks: Tensor) -> Budget:
        """The same budget for what is left after a decision."""
        return replace(self, available=masks.bool())

    def requiring(self, required: Tensor) -> Budget:
        """The same budget, to be met without these units going: one boolean each."""
        return replace(self, required=required)

    @property
    def is_reachable(self) -> bool:
        """Whether the budget can be met with all that is required."""
        return float(self.cost(self.least())) <= self.target

    @property
    def target(self) -> float:
        """The largest cost allowed."""
        return self._allowed(self.share)

    def cost(self, masks: Tensor) -> Tensor:
        """What the model with these masks costs; differentiable."""
        return self.meter(self.units.alive(masks))

    def share_of(self, masks: Tensor) -> float:
        """The cost of masks as a share of the whole model."""
        return float(self.cost(masks)) / self.total

    def least(self) -> Tensor:
        """Masks with one unit in every group, and all that is required."""
        masks = torch.zeros(len(self.units))
        first = torch.cat(
            [torch.ones(1, dtype=torch.bool), self.units.group_of[1:] != self.units.group_of[:-1]]
        )
        masks[first[: len(masks)]] = 1
        return torch.where(self.required, self.available.to(masks.dtype), masks)

    def penalty(self, masks: Tensor) -> Tensor:
        """The paper's regulariser: log(max(cost, target) / target), zero at or below the target."""
        return (self.cost(masks).clamp_min(self.target) / self.target).log()

    def line(self, scores: Tensor, *, share: float | None = None) -> float:
        """The score that separates what stays from what goes, so that what is above costs at most the budget (or another share)."""
        target = self.target if share is None else self._allowed(share)
        order = Ranking(self.units, scores, available=self.available, required=self.required)
        return order.score_below(self._largest(order, target))

    def choose(self, scores: Tensor, *, share: float | None = None) -> Tensor:
        """The masks of the highest scores that cost at most the budget (or another share), on round widths where that fits."""
        target = self.target if share is None else max(self._allowed(share), float(self.cost(self.least())))
        order = Ranking(self.units, scores, available=self.available, required=self.required)
        # The threshold on scores at which the cost meets the target, by bisection on how many units stay.
        counts = order.counts_of_best(self._largest(order, target))
        counts = self._rounded(order, counts)
        while self._cost_of(order, counts) > target:
            counts = self._step_down(order, counts)
        for finest in (
            self.roundings,
            (self.roundings // 2).clamp_min(1),
            (self.roundings // 4).clamp_min(1),
            torch.ones_like(self.roundings),
        ):
            counts = self._filled(order, counts, finest, target)
            if target - self._cost_of(order, counts) <= min(
                CLOSE_ENOUGH * self.total, CLOSE_ENOUGH_OF_BUDGET * target
            ):
                break
        return order.masks(counts)

    def _allowed(self, share: float) -> float:
        """The largest whole cost whose share is at most this one.

        `share * total` alone may round to just below it.
        """
        below = math.floor(share * self.total)
        return float(below + ((below + 1) / self.total <= share))

    def _largest(self, order: Ranking, target: float) -> int:
        low, high = 0, int(self.available.sum())
        while low < high:
            middle = (low + high + 1) // 2
            if self._cost_of(order, order.counts_of_best(middle)) <= target:
                low = middle
            else:
                high = middle - 1
        return low

    def _cost_of(self, order: Ranking, counts: Tensor) -> float:
        return float(self.cost(order.masks(counts)))

    def _rounded(self, order: Ranking, counts: Tensor) -> Tensor:
        """Each width to the nearest multiple.

        A whole group stays whole, and one too narrow for a multiple stays as it is.
        """
        sizes = order.sizes
        rounded = (counts + self.roundings // 2) // self.roundings * self.roundings
        rounded = torch.where((rounded == 0) | (counts == sizes), counts, rounded)
        return rounded.minimum(sizes)

    def _step_down(self, order: Ranking, counts: Tensor) -> Tensor:
        """One rounding step less in the group whose next units score lowest.

        Single units where a whole step would empty it.
        """
        best, chosen = float("inf"), None
        for number, count in enumerate(counts.tolist()):
            if count <= 1 or bool(order.is_required[number]):
                continue
            step = int(self.roundings[number])
            # The last step is halved, and halved again: rounding never empties a layer at once.
            fewer = (count - 1) // step * step or count // 2
            mean = float(order.scores_of(number)[fewer:count].mean())
            if mean < best:
                best, chosen = mean, (number, fewer)
        assert chosen is not None, (
            "checked before: one unit in each group and what is required is below the budget"
        )
        counts = counts.clone()
        counts[chosen[0]] = chosen[1]
        return counts

    def _filled(self, order: Ranking, counts: Tensor, steps: Tensor, target: float) -> Tensor:
        """Add steps of the highest scores for as long as one fits under the target."""
        counts = counts.clone()
        tired: set[int] = set()
        while len(tired) < len(counts):
            best, chosen = -float("inf"), None
            for number, count in enumerate(counts.tolist()):
                size = int(order.sizes[number])
                if number in tired or count == size:
                    continue
                step = int(steps[number])
                more = min(size, (count // step + 1) * step)
                mean = float(order.scores_of(number)[count:more].mean())
                if mean > best:
                    best, chosen = mean, (number, more)
            if chosen is None:
                break
            number, more = chosen
            before = int(counts[number])
            counts[number] = more
            cost = self._cost_of(order, counts)
            if cost > target:
                counts[number] = before
                tired.add(number)
            elif target - cost <= FULL * self.total:
                break
        return counts


def check_share(word: str, share: object) -> None:
    """Refuse what is no share above 0 and up to 1; where it looks like one, say which."""
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1:
        return
    text = str(share).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = math.nan
    number = number / 100 if 1 < number <= 100 else number
    meant = (
        f"Did you mean {number:g}?"
        if isinstance(share, int | float | str) and 0 < number < 1
        else "0.45 keeps 45 % of the whole model."
    )
    raise BudgetError(f"{word} must be above 0 and at most 1, got {share!r}. {meant}")


def _rounding(num_channels: int, width: int, round_to: int | None) -> int:
    """What a group's width is rounded to: about a sixteenth of it, a power of two up to 16.

    On heads any number.
    """
    if round_to is not None:
        return min(round_to, num_channels)
    if width > 1:
        return 1
    sixteenth = max(1, num_channels // 16)
    return min(WIDEST_ROUNDING, 1 << (sixteenth.bit_length() - 1))


def _up(share: float) -> float:
    """A share rounded up to four places, so that asking for it works."""
    return min(1.0, (int(share * 10_000) + 1) / 10_000)
