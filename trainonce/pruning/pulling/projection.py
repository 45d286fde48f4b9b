"""Pull the units that are to go toward zero after an optimizer step.

The operators of `proximal`, applied in place to the rows of many parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from trainonce.pruning.pulling.proximal import (
    Ragged,
    check_epsilon,
    half_space,
    shrink_groups,
    shrink_groups_in_metric,
    step_toward_zero,
)
from trainonce.pruning.units import Rows, Units, row_sums


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """The rows of the units that are pulled, as the optimizer left them; one part per axis of a parameter."""

    rows: Ragged
    learning_rates: list[float]
    """For each part, the learning rate of its parameter."""

    before: Ragged
    """The same rows before the optimizer's step; without parts unless the pull needs them."""

    metric: Callable[[], list[Tensor]]
    """Adam's `sqrt(v) + eps` of the same rows; ones where the optimizer keeps no second moment."""

    def strengths(self, strength: float) -> list[float]:
        """For each part, `learning rate * strength`."""
        return [rate * strength for rate in self.learning_rates]


class Pull(Protocol):
    """How a unit is brought to zero; pass one to `attach(pull=...)`."""

    @property
    def needs_before(self) -> bool:
        """Whether `Trial.before` has to be filled."""
        ...

    def pulled(self, trial: Trial, strength: float) -> Ragged:
        """The trial's rows after a pull by `learning rate * strength`."""
        ...


@dataclass(frozen=True, slots=True)
class Proximal:
    """The default pull: the proximal map of the group lasso, equation 5 of the paper."""

    needs_before: bool = field(default=False, init=False)

    def pulled(self, trial: Trial, strength: float) -> Ragged:
        """Each unit, shortened by `learning rate * strength` or zero."""
        return shrink_groups(trial.rows, trial.strengths(strength))


@dataclass(frozen=True, slots=True)
class AdamMetric:
    """The proximal map of the group lasso in Adam's metric, as the paper's analysis has it.

    Same as `Proximal` for optimizers without a second moment, up to rounding.
    """

    needs_before: bool = field(default=False, init=False)

    def pulled(self, trial: Trial, strength: float) -> Ragged:
        """Each unit, pulled to the minimum of the proximal problem in Adam's metric."""
        return shrink_groups_in_metric(trial.rows, trial.metric(), trial.strengths(strength))


@dataclass(frozen=True, slots=True)
class HalfSpace:
    """OTO's half-space step, equation 4 of the paper.

    A subgradient step of the group lasso, then zero for units that left the half-space.
    """

    epsilon: float = 0.0
    """At least 0 and below 1; larger values zero a unit earlier."""

    needs_before: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def pulled(self, trial: Trial, strength: float) -> Ragged:
        """Each unit, moved against its old direction or zero."""
        stepped = step_toward_zero(trial.rows, trial.before, trial.strengths(strength))
        return half_space(stepped, trial.before, self.epsilon)


class Projection:
    """Pulls units of one model in place, and keeps those at zero that got there."""

    def __init__(
        self, units: Units, tensors: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        self._units = units
        self._tensors = tensors
        self._optimizer = optimizer
        self._pulled_units: Tensor | None = None
        self._selected: list[Rows] = []
        self._before: list[Tensor] = []

    def select(self, pulled_units: Tensor) -> None:
        """Set which units are pulled from now on: one boolean each."""
        if self._pulled_units is not None and torch.equal(self._pulled_units, pulled_units):
            return
        self._pulled_units = pulled_units
        self._before = []
        self._selected = []
        for rows in self._units.writers:
            chosen = pulled_units[rows.units]
            if bool(chosen.any()):
                self._selected.append(rows.where(chosen).to(self._tensors[rows.tensor].device))

    @property
    def pulled_units(self) -> Tensor | None:
        """What `select` was last given."""
        return self._pulled_units

    def remember(self) -> None:
        """Before an optimizer step: keep the selected rows for pulls that compare with them."""
        self._before = [self._take(rows) for rows in self._selected]

    @torch.no_grad()
    def apply(
        self,
        pull: Pull,
        strength: float,
        *,
        largest_scale: float = 1.0,
        floor: Tensor | None = None,
        held: Tensor | None = None,
    ) -> None:
        """Pull the selected units.

        Args:
            pull: The operator.
            strength: The paper's lambda; the pull is `learning rate * strength`.
            largest_scale: Below 1, units are also scaled by this factor; 0 zeroes them now.
            floor: For each unit, the norm at which the pull stops. Shorter units are left alone.
            held: Units to leave alone: one boolean each.
        """
        selected, before = (
            (self._selected, self._before) if held is None else _without(held, self._selected, self._before)
        )
        if largest_scale == 0:
            self._zero(selected)
            return
        if not selected or (pull.needs_before and not before):
            return
        trial = self._trial(selected, before)
        pulled = pull.pulled(trial, strength)
        if largest_scale < 1:
            pulled = pulled.with_rows(torch.ops.aten._foreach_mul.Scalar(pulled.rows, largest_scale))
        if floor is not None:
            pulled = _not_below(floor.to(trial.rows.rows[0].device), trial.rows, pulled)
        self._write(selected, trial.rows, pulled)
        if floor is None:
            self._stop_zeros(selected)

    def norms(self) -> Tensor:
        """The norm of each unit over all its writers, selected or not."""
        return self._units.sum_rows(
            self._tensors, lambda rows, _: row_sums(rows.float().square()), dtype=torch.float
        ).sqrt()

    def mean_norms(self) -> Tensor:
        """For each unit, the mean norm in its group."""
        norms = self.norms()
        means = self._units.per_group(norms) / self._units.per_group(torch.ones_like(norms))
        return means[self._units.group_of]

    def all_zero(self) -> bool:
        """Whether every selected unit is exactly zero."""
        return all(not bool(self._take(rows).any()) for rows in self._selected)

    def _take(self, rows: Rows) -> Tensor:
        return rows.take(self._tensors[rows.tensor].detach())

    def _trial(self, selected: list[Rows], before: list[Tensor]) -> Trial:
        rates = {
            id(parameter): float(group.get("lr", 1.0))
            for group in self._optimizer.param_groups
            for parameter in group["params"]
        }
        rows = Ragged(
            [self._take(rows) for rows in selected], [rows.units for rows in selected], len(self._units)
        )
        return Trial(
            rows=rows,
            learning_rates=[rates[id(self._tensors[rows.tensor])] for rows in selected],
            before=rows.with_rows(before),
            metric=lambda: [
                self._metric(part, now).to(now.dtype) for part, now in zip(selected, rows.rows, strict=True)
            ],
        )

    def _metric(self, rows: Rows, now: Tensor) -> Tensor:
        """`sqrt(v / (1 - beta2^t)) + eps` of Adam and its kin; ones for other optimizers."""
        parameter = self._tensors[rows.tensor]
        state = self._optimizer.state.get(parameter, {})
        if "exp_avg_sq" not in state:
            return torch.ones_like(now)
        settings = next(
            group
            for group in self._optimizer.param_groups
            if any(parameter is member for member in group["params"])
        )
        correction = (
            1 - settings["betas"][1] ** float(state["step"])
            if "betas" in settings and "step" in state
            else 1.0
        )
        return (rows.take(state["exp_avg_sq"]) / correction).sqrt() + settings.get("eps", 1e-8)

    def _write(self, selected: list[Rows], before: Ragged, pulled: Ragged) -> None:
        seen: set[str] = set()
        for rows, old, new in zip(selected, before.rows, pulled.rows, strict=True):
            if rows.tensor in seen:
                # Both axes of the parameter are pulled: scale what the first pass left.
                ratio = torch.where(old == 0, torch.zeros_like(old), new / old)
                new = self._take(rows) * torch.nan_to_num(ratio)
            seen.add(rows.tensor)
            rows.put(self._tensors[rows.tensor].detach(), new)

    def _zero(self, selected: list[Rows]) -> None:
        for rows in selected:
            self._tensors[rows.tensor].detach().index_fill_(rows.axis, rows.positions, 0)
            self._stop(rows)

    def _stop_zeros(self, selected: list[Rows]) -> None:
        for rows in selected:
            at_zero = row_sums(self._take(rows).abs()) == 0
            if bool(at_zero.any()):
                self._stop(rows.where(at_zero))

    def _stop(self, rows: Rows) -> None:
        """Clear the optimizer's state of rows at zero: momentum would carry them away again."""
        parameter = self._tensors[rows.tensor]
        for item in self._optimizer.state.get(parameter, {}).values():
            if isinstance(item, Tensor) and item.shape == parameter.shape and item.dim() > 0:
                item.index_fill_(rows.axis, rows.positions, 0)


def _without(held: Tensor, selected: list[Rows], before: list[Tensor]) -> tuple[list[Rows], list[Tensor]]:
    """The rows of units that are not held, and the same rows before the step."""
    free = [~held.to(rows.units.device)[rows.units] for rows in selected]
    rows = [part.where(mine) for part, mine in zip(selected, free, strict=True) if bool(mine.any())]
    return rows, [part[mine] for part, mine in zip(before, free, strict=False) if bool(mine.any())]


def _not_below(floor_U: Tensor, old: Ragged, pulled: Ragged) -> Ragged:
    """The pulled rows; units that fell below the floor are the old ones, shortened to the floor at most."""
    too_far_U = pulled.norm() < floor_U
    norm_U = old.norm()
    scale_U = (floor_U / norm_U.clamp_min(torch.finfo(norm_U.dtype).tiny)).clamp_max(1)
    on_floor = old.scaled(old.spread(scale_U))
    return pulled.with_rows(
        [
            torch.where(too_far, floored, new)
            for too_far, floored, new in zip(
                pulled.spread(too_far_U), on_floor.rows, pulled.rows, strict=True
            )
        ]
    )
