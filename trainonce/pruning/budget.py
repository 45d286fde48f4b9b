"""From scores to masks that meet a budget: at or just below it, on round widths, with no group emptied."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainonce.errors import BudgetError
from trainonce.messages.limits import Limits, check_value
from trainonce.messages.plain_text import shorten
from trainonce.pruning.ranking import Ranking
from trainonce.pruning.units import Units
from trainonce.pruning.widths import Widths, rounded_up, rounding_of
from trainonce.structure.cost import Meter

CLOSE_ENOUGH = 0.005
"""The share of the whole model that may stay unused before widths are rounded more finely."""

CLOSE_ENOUGH_OF_BUDGET = 0.01
"""The same as a share of the budget; the smaller of the two counts."""

FULL = 0.0005
"""Within this share of the whole model, a budget counts as used up."""


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """The share of the whole model that may stay, and how to count it."""

    units: Units
    meter: Meter
    total: float
    share: float
    widths: Widths
    """Which groups change their width together."""

    roundings: Tensor
    """For each family, the number its width should be a multiple of."""

    word: str
    """The argument of `attach` that set it: keep_flops or keep_params."""

    available: Tensor
    """The units that may stay: those no earlier decision has dropped."""

    required: Tensor
    """The units that must stay while they are available, because their weights are frozen; whole groups."""

    @classmethod
    def of_flops(cls, units: Units, share: float, round_to: int | None) -> Budget:
        """A share of the model's multiply-adds."""
        return cls._checked(units, Meter.of(units.partition.contractions), share, round_to, "keep_flops")

    @classmethod
    def of_parameters(cls, units: Units, share: float, round_to: int | None) -> Budget:
        """A share of the model's parameters."""
        return cls._checked(units, Meter.of(units.partition.tensor_sizes), share, round_to, "keep_params")

    @classmethod
    def _checked(cls, units: Units, meter: Meter, share: float, round_to: int | None, word: str) -> Budget:
        check_share(word, share)
        if round_to is not None:
            hint = "None picks one by width; 1 allows any width."
            check_value("round_to", round_to, Limits(kind=int, at_least=1), hint, error=BudgetError)
        if not len(units):
            raise BudgetError(
                f"{word}={share} can't be met: no channel of this model can be cut. {units.why_kept()}"
            )
        total = float(meter(units.alive(torch.ones(len(units)))))
        if total == 0:
            raise BudgetError(
                f"{word} has nothing to count: the model does no multiply-adds on this example. Use "
                "keep_params instead."
            )
        widths = Widths.of(units.groups)
        of_groups = [rounding_of(group.num_channels, group.width, round_to) for group in units.groups]
        roundings = widths.roundings(torch.tensor(of_groups, dtype=torch.long))
        ones = torch.ones(len(units), dtype=torch.bool)
        budget = cls(
            units, meter, total, float(share), widths, roundings, word, available=ones, required=~ones
        )
        smallest = budget.share_of(budget.least())
        if share < smallest:
            raise BudgetError(
                f"{word}={share} can't be reached: with one channel left in each group that may be cut, "
                f"{smallest:.4f} remains. {units.why_kept()} Ask for {rounded_up(smallest)} to 1."
            )
        return budget

    def within(self, masks: Tensor) -> Budget:
        """The same budget within what a decision left."""
        return replace(self, available=masks.bool())

    def requiring(self, required: Tensor) -> Budget:
        """The same budget, to be met without dropping these units: one boolean each.

        Nor are units dropped of groups that must stay as wide.
        """
        if len(self.widths.members) < len(self.units.groups):
            families = self.widths.any_of(self.units.per_group(required.long()) > 0)
            required = families[self.widths.family_of][self.units.group_of]
        return replace(self, required=required)

    @property
    def counted(self) -> str:
        """What is counted, for people to read."""
        return "parameters" if self.word == "keep_params" else "FLOPs"

    @property
    def is_reachable(self) -> bool:
        """Whether the budget can be met with everything that is required."""
        return float(self.cost(self.least())) <= self.target

    @property
    def target(self) -> float:
        """The largest allowed cost."""
        return self._allowed(self.share)

    def cost(self, masks: Tensor) -> Tensor:
        """The cost of the model with these masks; differentiable."""
        return self.meter(self.units.alive(masks))

    def share_of(self, masks: Tensor) -> float:
        """The cost with these masks as a share of the whole model."""
        return float(self.cost(masks)) / self.total

    def least(self) -> Tensor:
        """Masks that keep one step of each group, and everything that is required."""
        sizes = self.units.sizes
        place = torch.arange(len(self.units)) - (sizes.cumsum(0) - sizes)[self.units.group_of]
        masks = (place < self.widths.steps[self.units.group_of]).float()
        return torch.where(self.required, self.available.to(masks.dtype), masks)

    def penalty(self, masks: Tensor) -> Tensor:
        """The paper's regularizer: log(max(cost, target) / target), zero at or below the target."""
        return (self.cost(masks).clamp_min(self.target) / self.target).log()

    def line(self, scores: Tensor, *, share: float | None = None) -> float:
        """The threshold on scores above which units cost at most the budget, or another share."""
        target = self.target if share is None else self._allowed(share)
        ranking = self._ranking(scores)
        return ranking.score_below(self._largest(ranking, target, torch.ones_like(ranking.sizes)))

    def choose(self, scores: Tensor, *, share: float | None = None) -> Tensor:
        """Masks of the highest scores that cost at most the budget, or another share.

        Widths are round where that fits.
        """
        target = self.target if share is None else max(self._allowed(share), float(self.cost(self.least())))
        ranking = self._ranking(scores)
        widths = self._within(ranking, target, torch.ones_like(ranking.sizes))
        if not self.widths.are_plain:
            widths = self._closer(ranking, target, widths)
        return ranking.masks(widths)

    def _closer(self, ranking: Ranking, target: float, widths: Tensor) -> Tensor:
        """Widths that use more of the budget, where coarse steps leave some: one wider, others less."""
        while target - self._cost_of(ranking, widths) > CLOSE_ENOUGH_OF_BUDGET * target:
            tried = []
            for number in (widths < ranking.sizes).nonzero().flatten().tolist():
                floor = torch.ones_like(widths)
                floor[number] = widths[number] + 1
                least = torch.where(ranking.is_required, ranking.sizes, floor)
                if self._cost_of(ranking, least) <= target:
                    tried.append(self._within(ranking, target, floor))
            best = max(tried, key=lambda other: self._cost_of(ranking, other), default=widths)
            if self._cost_of(ranking, best) <= self._cost_of(ranking, widths):
                break
            widths = best
        return widths

    def _within(self, ranking: Ranking, target: float, floor: Tensor) -> Tensor:
        """The widths of the highest scores that cost at most the target, none of them below its floor."""
        # Bisect on how many units stay, then round widths, then use up what is left.
        widths = ranking.widths_of_best(self._largest(ranking, target, floor)).maximum(floor)
        widths = self._rounded(ranking, widths).maximum(floor)
        while self._cost_of(ranking, widths) > target:
            widths = self._step_down(ranking, widths, floor)
        for finest in (
            self.roundings,
            (self.roundings // 2).clamp_min(1),
            (self.roundings // 4).clamp_min(1),
            torch.ones_like(self.roundings),
        ):
            widths = self._filled(ranking, widths, finest, target)
            if target - self._cost_of(ranking, widths) <= min(
                CLOSE_ENOUGH * self.total, CLOSE_ENOUGH_OF_BUDGET * target
            ):
                break
        return widths

    def _ranking(self, scores: Tensor) -> Ranking:
        return Ranking(self.units, self.widths, scores, available=self.available, required=self.required)

    def _allowed(self, share: float) -> float:
        """The largest whole cost whose share is at most this one.

        `share * total` alone may round to just below it.
        """
        below = math.floor(share * self.total)
        return float(below + ((below + 1) / self.total <= share))

    def _largest(self, ranking: Ranking, target: float, floor: Tensor) -> int:
        low, high = 0, int(self.available.sum())
        while low < high:
            middle = (low + high + 1) // 2
            if self._cost_of(ranking, ranking.widths_of_best(middle).maximum(floor)) <= target:
                low = middle
            else:
                high = middle - 1
        return low

    def _cost_of(self, ranking: Ranking, widths: Tensor) -> float:
        return float(self.cost(ranking.masks(widths)))

    def _rounded(self, ranking: Ranking, widths: Tensor) -> Tensor:
        """Each width at its nearest multiple; whole families, and those too narrow for one, as they are."""
        sizes = ranking.sizes
        rounded = (widths + self.roundings // 2) // self.roundings * self.roundings
        rounded = torch.where((rounded == 0) | (widths == sizes), widths, rounded)
        return rounded.minimum(sizes)

    def _step_down(self, ranking: Ranking, widths: Tensor, floor: Tensor) -> Tensor:
        """One rounding step less in the family whose next units score lowest."""
        best, chosen = float("inf"), None
        for number, width in enumerate(widths.tolist()):
            least = int(floor[number])
            if width <= least or bool(ranking.is_required[number]):
                continue
            step = int(self.roundings[number])
            # Below one step the width is halved: rounding never empties a layer at once.
            fewer = max((width - 1) // step * step or width // 2, least)
            mean = ranking.mean_score(number, fewer, width)
            if mean < best:
                best, chosen = mean, (number, fewer)
        assert chosen is not None, "checked before: one step per group and everything required fit the budget"
        widths = widths.clone()
        widths[chosen[0]] = chosen[1]
        return widths

    def _filled(self, ranking: Ranking, widths: Tensor, steps: Tensor, target: float) -> Tensor:
        """Widen the families whose next units score highest, for as long as a step fits under the target."""
        widths = widths.clone()
        full: set[int] = set()
        while len(full) < len(widths):
            best, chosen = -float("inf"), None
            for number, width in enumerate(widths.tolist()):
                size = int(ranking.sizes[number])
                if number in full or width == size:
                    continue
                step = int(steps[number])
                more = min(size, (width // step + 1) * step)
                mean = ranking.mean_score(number, width, more)
                if mean > best:
                    best, chosen = mean, (number, more)
            if chosen is None:
                break
            number, more = chosen
            before = int(widths[number])
            widths[number] = more
            cost = self._cost_of(ranking, widths)
            if cost > target:
                widths[number] = before
                full.add(number)
            elif target - cost <= FULL * self.total:
                break
        return widths


def check_one_budget(keep_flops: object, keep_params: object) -> None:
    """Raise BudgetError unless one of the two is a share, and the other is None."""
    if (keep_flops is None) == (keep_params is None):
        raise BudgetError(
            "pass either keep_flops or keep_params. keep_flops=0.45 keeps 45 % of the model's FLOPs."
        )
    check_share(
        "keep_params" if keep_flops is None else "keep_flops",
        keep_params if keep_flops is None else keep_flops,
    )


def check_share(word: str, share: object) -> None:
    """Raise BudgetError unless this is a share above 0 and at most 1; guess what was meant."""
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
    raise BudgetError(f"{word} must be above 0 and at most 1, got {shorten(share)}. {meant}")
