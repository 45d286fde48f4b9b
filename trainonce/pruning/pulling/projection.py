"""Pull the units that are to go towards zero after an optimizer step.

The operators of `proximal` on rows of many parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from trainonce.pruning.pulling.proximal import metric_radius, shrink_scale, stays_in_half_space
from trainonce.pruning.units import Rows, Units

multiply_all = torch.ops.aten._foreach_mul.List
"""Products of two lists of tensors, in one call."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Rows of the units that are pulled, as the optimizer left them.

    The lists run side by side, one entry per axis of a parameter; a row holds the numbers of one position on
    that axis.
    """

    rows: list[Tensor]
    units: list[Tensor]
    learning_rates: list[float]
    before: list[Tensor]
    """The same rows before the optimizer's step; empty unless the pull asks for them."""

    metrics: list[Tensor | None]
    """Adam's `sqrt(v) + eps` of the same rows, where the optimizer keeps it."""

    num_units: int

    def total(self, per_row: Sequence[Tensor]) -> Tensor:
        """Sum numbers per row to numbers per unit, in float32 at least."""
        dtype = torch.promote_types(per_row[0].dtype, torch.float32)
        return torch.zeros(self.num_units, dtype=dtype, device=per_row[0].device).index_add(
            0, torch.cat(self.units), torch.cat([part.to(dtype) for part in per_row])
        )

    def squares(self, rows: Sequence[Tensor]) -> Tensor:
        """The squared norm of every unit."""
        return self.total([_row_sums(product) for product in multiply_all(rows, rows)])


class Pull(Protocol):
    """How a unit is brought to zero; pass one to `attach`."""

    @property
    def needs_before(self) -> bool:
        """Whether `Trial.before` has to be filled."""
        ...

    def pulled(self, trial: Trial, strength: float) -> list[Tensor]:
        """The trial's rows, pulled by `learning rate * strength`."""
        ...


@dataclass(frozen=True, slots=True)
class Proximal:
    """The proximal map of the group lasso (the paper's equation 5, its default)."""

    needs_before: bool = field(default=False, init=False)

    def pulled(self, trial: Trial, strength: float) -> list[Tensor]:
        """Each unit shorter by `learning rate * strength`, or zero."""
        norms = trial.squares(trial.rows).sqrt()
        scales = [
            shrink_scale(norms[units], torch.full_like(norms[units], rate * strength))
            for units, rate in zip(trial.units, trial.learning_rates, strict=True)
        ]
        return _scaled(trial.rows, scales)


@dataclass(frozen=True, slots=True)
class AdamMetric:
    """The proximal map of the group lasso in the metric of Adam, as the paper's analysis has it.

    Where the optimizer keeps no second moment, the metric is that of SGD: distance is distance.
    """

    needs_before: bool = field(default=False, init=False)

    def pulled(self, trial: Trial, strength: float) -> list[Tensor]:
        """Each unit pulled so that the step solves its own minimisation in the metric."""
        metrics = [
            torch.ones_like(rows) if metric is None else metric.to(rows.dtype)
            for rows, metric in zip(trial.rows, trial.metrics, strict=True)
        ]
        moved = multiply_all(trial.rows, metrics)
        strengths = [rate * strength for rate in trial.learning_rates]
        if not any(strengths):
            return trial.rows

        def denominators(radius_U: Tensor) -> list[Tensor]:
            return [
                metric * _per_row(radius_U[units], metric) + pull
                for metric, units, pull in zip(metrics, trial.units, strengths, strict=True)
            ]

        def secular(radius_U: Tensor) -> Tensor:
            return trial.squares(
                [rows / below for rows, below in zip(moved, denominators(radius_U), strict=True)]
            )

        radius = metric_radius(secular, trial.squares(trial.rows).sqrt())
        lives = secular(torch.zeros_like(radius)) > 1
        scales = [lives[units] for units in trial.units]
        shrunk = [
            torch.nan_to_num(rows * _per_row(radius[units], rows) / below).to(rows.dtype)
            for rows, units, below in zip(moved, trial.units, denominators(radius), strict=True)
        ]
        return _scaled(shrunk, scales)


@dataclass(frozen=True, slots=True)
class HalfSpace:
    """OTO's half-space step (the paper's equation 4).

    A subgradient step of the group lasso, then zero for what left the half-space.
    """

    epsilon: float = 0.0
    """From 0 on, below 1; larger values give up a unit earlier."""

    needs_before: bool = field(default=True, init=False)

    def pulled(self, trial: Trial, strength: float) -> list[Tensor]:
        """Each unit moved against its old direction, or zero."""
        squares = trial.squares(trial.before)
        norms = squares.sqrt().clamp_min(torch.finfo(squares.dtype).tiny)
        stepped = [
            rows - rate * strength * before / _per_row(norms[units], rows).to(rows.dtype)
            for rows, before, units, rate in zip(
                trial.rows, trial.before, trial.units, trial.learning_rates, strict=True
            )
        ]
        products = trial.total([_row_sums(product) for product in multiply_all(stepped, trial.before)])
        stays = stays_in_half_space(products, squares, self.epsilon) & (squares > 0)
        return _scaled(stepped, [stays[units] for units in trial.units])


class Projection:
    """Bound to the parameters of one model and its optimizer.

    Pulls units, and holds those at zero that have arrived there.
    """

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
        """Which units are pulled from now on: one boolean each."""
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
        """What `select` was given last."""
        return self._pulled_units

    def remember(self) -> None:
        """Before an optimizer step: keep the selected rows for pulls that compare with them."""
        self._before = [self._rows(rows, self._tensors[rows.tensor].detach()) for rows in self._selected]

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

        `largest_scale` below 1 shortens them by that factor at least, 0 makes them zero now.

        A pull that would bring a unit's norm below its `floor` ends there; units that are below it already
        are left alone; so are the `held` ones.
        """
        selected, before = (
            (self._selected, self._before) if held is None else _without(held, self._selected, self._before)
        )
        if largest_scale == 0:
            self._fill_with_zero(selected)
            return
        if not selected or (pull.needs_before and not before):
            return
        trial = self._trial(selected, before, with_metrics=isinstance(pull, AdamMetric))
        pulled = pull.pulled(trial, strength)
        if largest_scale < 1:
            pulled = torch.ops.aten._foreach_mul.Scalar(pulled, largest_scale)
        if floor is not None:
            pulled = _not_below(floor.to(trial.rows[0].device), trial, pulled)
        seen: set[str] = set()
        for rows, old, new in zip(selected, trial.rows, pulled, strict=True):
            parameter = self._tensors[rows.tensor]
            if rows.tensor in seen:
                # Both axes of the parameter are pulled: scale what the first pass left.
                ratio = torch.where(old == 0, torch.zeros_like(old), new / old)
                new = self._rows(rows, parameter.detach()) * torch.nan_to_num(ratio)
            seen.add(rows.tensor)
            parameter.detach().index_copy_(rows.axis, rows.positions, new.movedim(0, rows.axis))
        if floor is None:
            self._clear_state(selected)

    def norms(self) -> Tensor:
        """The norm of every unit over all of its writers, selected or not."""
        total = torch.zeros(len(self._units))
        for rows in self._units.writers:
            piece = (
                self._tensors[rows.tensor]
                .detach()
                .index_select(rows.axis, rows.positions.to(self._tensors[rows.tensor].device))
            )
            sums = _row_sums(piece.movedim(rows.axis, 0).float().square())
            total.index_add_(0, rows.units, sums.cpu())
        return total.sqrt()

    def mean_norms(self) -> Tensor:
        """For every unit, the mean norm in its group."""
        norms = self.norms()
        means = self._units.per_group(norms) / self._units.per_group(torch.ones_like(norms))
        return means[self._units.group_of]

    def all_zero(self) -> bool:
        """Whether everything that is selected is exactly zero."""
        return all(
            not bool(self._rows(rows, self._tensors[rows.tensor].detach()).any()) for rows in self._selected
        )

    def _rows(self, rows: Rows, tensor: Tensor) -> Tensor:
        return tensor.index_select(rows.axis, rows.positions).movedim(rows.axis, 0)

    def _trial(self, selected: list[Rows], before: list[Tensor], *, with_metrics: bool) -> Trial:
        groups = self._optimizer.param_groups
        rates = {
            id(parameter): float(group.get("lr", 1.0)) for group in groups for parameter in group["params"]
        }
        return Trial(
            rows=[self._rows(rows, self._tensors[rows.tensor].detach()) for rows in selected],
            units=[rows.units for rows in selected],
            learning_rates=[rates[id(self._tensors[rows.tensor])] for rows in selected],
            before=before,
            metrics=[self._metric(rows) for rows in selected] if with_metrics else [],
            num_units=len(self._units),
        )

    def _metric(self, rows: Rows) -> Tensor | None:
        """`sqrt(v / (1 - beta2^t)) + eps` of Adam and its kin; None for other optimizers."""
        parameter = self._tensors[rows.tensor]
        state = self._optimizer.state.get(parameter, {})
        if "exp_avg_sq" not in state:
            return None
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
        return (self._rows(rows, state["exp_avg_sq"]) / correction).sqrt() + settings.get("eps", 1e-8)

    def _fill_with_zero(self, selected: list[Rows]) -> None:
        for rows in selected:
            self._tensors[rows.tensor].detach().index_fill_(rows.axis, rows.positions, 0)
            self._stop(rows, rows.positions)

    def _clear_state(self, selected: list[Rows]) -> None:
        for rows in selected:
            at_zero = _row_sums(self._rows(rows, self._tensors[rows.tensor].detach()).abs()) == 0
            if bool(at_zero.any()):
                self._stop(rows, rows.positions[at_zero])

    def _stop(self, rows: Rows, positions: Tensor) -> None:
        """A unit at zero has no momentum: it would walk away from zero again."""
        parameter = self._tensors[rows.tensor]
        for item in self._optimizer.state.get(parameter, {}).values():
            if isinstance(item, Tensor) and item.shape == parameter.shape and item.dim() > 0:
                item.index_fill_(rows.axis, positions, 0)


def _without(held: Tensor, selected: list[Rows], before: list[Tensor]) -> tuple[list[Rows], list[Tensor]]:
    """The rows of units that are not held, and what they were before."""
    free = [~held.to(rows.units.device)[rows.units] for rows in selected]
    rows = [part.where(mine) for part, mine in zip(selected, free, strict=True) if bool(mine.any())]
    return rows, [part[mine] for part, mine in zip(before, free, strict=False) if bool(mine.any())]


def _not_below(floor_U: Tensor, trial: Trial, pulled: list[Tensor]) -> list[Tensor]:
    """The pulled rows, and instead of those that end below the floor the old ones, shortened to it at most."""
    too_far_U = trial.squares(pulled).sqrt() < floor_U
    norms_U = trial.squares(trial.rows).sqrt()
    scale_U = (floor_U / norms_U.clamp_min(torch.finfo(norms_U.dtype).tiny)).clamp_max(1)
    on_floor = _scaled(trial.rows, [scale_U[units] for units in trial.units])
    return [
        torch.where(_per_row(too_far_U[units], new), old, new)
        for units, old, new in zip(trial.units, on_floor, pulled, strict=True)
    ]


def _row_sums(rows: Tensor) -> Tensor:
    return rows.flatten(1).sum(dim=1) if rows.dim() > 1 else rows


def _per_row(numbers: Tensor, rows: Tensor) -> Tensor:
    """One number per row, shaped to multiply rows."""
    return numbers.reshape(-1, *[1] * (rows.dim() - 1))


def _scaled(rows: Sequence[Tensor], scales: Sequence[Tensor]) -> list[Tensor]:
    factors = [_per_row(scale, part).to(part.dtype) for part, scale in zip(rows, scales, strict=True)]
    return multiply_all(rows, factors)
