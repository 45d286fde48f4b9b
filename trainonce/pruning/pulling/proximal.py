"""Pure operators that pull groups of numbers to zero.

The proximal map of the group lasso, the same in Adam's metric, and OTO's half-space projection. A group may
be scattered over rows of many tensors; `Ragged` adds up and scales such groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainonce.errors import SettingError
from trainonce.messages.limits import Limits, check_value
from trainonce.pruning.units import row_sums

multiply_all = torch.ops.aten._foreach_mul.List
"""Elementwise products of two lists of tensors, in one call."""


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Groups of numbers whose rows lie in several tensors of different shapes.

    Group g is all rows whose entry in `groups` is g. In shape suffixes, G is the number of groups.
    """

    rows: Sequence[Tensor]
    """One tensor per part; the first axis counts rows."""

    groups: Sequence[Tensor]
    """For each part, the group of each row."""

    num_groups: int

    def with_rows(self, rows: Sequence[Tensor]) -> Ragged:
        """The same groups with other numbers."""
        return replace(self, rows=rows)

    def dot(self, other: Ragged) -> Tensor:
        """The inner product of each group with the same group of another, in float32 or wider."""
        sums = [row_sums(product) for product in multiply_all(self.rows, other.rows)]
        dtype = torch.promote_types(sums[0].dtype, torch.float32)
        return torch.zeros(self.num_groups, dtype=dtype, device=sums[0].device).index_add(
            0, torch.cat(list(self.groups)), torch.cat([part.to(dtype) for part in sums])
        )

    def square(self) -> Tensor:
        """The squared norm of each group."""
        return self.dot(self)

    def norm(self) -> Tensor:
        """The norm of each group."""
        return self.square().sqrt()

    def spread(self, numbers_G: Tensor) -> list[Tensor]:
        """One number per group, repeated for each of its rows and shaped to broadcast over them."""
        return [
            numbers_G[groups].reshape(-1, *[1] * (rows.dim() - 1))
            for rows, groups in zip(self.rows, self.groups, strict=True)
        ]

    def scaled(self, factors: Sequence[Tensor]) -> Ragged:
        """Every row times its factor; factors as `spread` gives them."""
        return self.with_rows(
            multiply_all(
                self.rows, [factor.to(part.dtype) for part, factor in zip(self.rows, factors, strict=True)]
            )
        )


def shrink_groups(groups: Ragged, strengths: Sequence[float]) -> Ragged:
    """Pull each group toward zero by `strength`; groups shorter than that become zero.

    This is the proximal map of the group lasso (the paper's equation 5),

        argmin_z  1/2 |z - x|^2 + strength * sum_g |z_g|

    whose solution is  x_g * max(0, 1 - strength / |x_g|). Each part has a strength of its own: parameters
    have learning rates of their own.
    """
    norm_G = groups.norm()
    tiny = torch.finfo(norm_G.dtype).tiny
    # A group that is already zero stays zero; dividing by its norm would give NaN.
    return groups.scaled(
        [
            (1 - torch.full_like(norms, strength) / norms.clamp_min(tiny)).clamp(0, 1)
            for norms, strength in zip(groups.spread(norm_G), _checked(strengths), strict=True)
        ]
    )


def shrink_groups_in_metric(groups: Ragged, metric: Sequence[Tensor], strengths: Sequence[float]) -> Ragged:
    """The proximal map of the group lasso when distance is measured by a diagonal metric A.

        argmin_z  1/2 (z - x)^T A (z - x) + strength * sum_g |z_g|

    The solution is zero where |A x| <= strength; elsewhere z = A x * r / (A r + strength), where r = |z| is
    the root of a decreasing function. Entries of the metric must not be negative.
    """
    if not any(_checked(strengths)):
        return groups
    moved = groups.with_rows(multiply_all(groups.rows, metric))

    def denominators(radius_G: Tensor) -> list[Tensor]:
        return [
            part * radius + strength
            for part, radius, strength in zip(metric, groups.spread(radius_G), strengths, strict=True)
        ]

    def secular(radius_G: Tensor) -> Tensor:
        return moved.with_rows(
            [rows / below for rows, below in zip(moved.rows, denominators(radius_G), strict=True)]
        ).square()

    radius_G = _root(secular, groups.norm())
    lives_G = secular(torch.zeros_like(radius_G)) > 1
    shrunk = [
        torch.nan_to_num(rows * radius / below).to(rows.dtype)
        for rows, radius, below in zip(
            moved.rows, moved.spread(radius_G), denominators(radius_G), strict=True
        )
    ]
    return groups.with_rows(shrunk).scaled(groups.spread(lives_G))


def step_toward_zero(groups: Ragged, before: Ragged, strengths: Sequence[float]) -> Ragged:
    """A subgradient step of the group lasso, taken at the point before:  z_g - strength * x_g / |x_g|."""
    norm_G = before.norm()
    norms = before.spread(norm_G.clamp_min(torch.finfo(norm_G.dtype).tiny))
    return groups.with_rows(
        [
            rows - strength * old / norm.to(rows.dtype)
            for rows, old, norm, strength in zip(
                groups.rows, before.rows, norms, _checked(strengths), strict=True
            )
        ]
    )


def half_space(trial: Ragged, before: Ragged, epsilon: float) -> Ragged:
    """OTO's half-space projection: groups that left the half-space around the point before become zero.

    z_g <- 0  if  <z_g, x_g> < epsilon * |x_g|^2  or  x_g = 0
    """
    square_G = before.square()
    stays_G = (trial.dot(before) >= check_epsilon(epsilon) * square_G) & (square_G > 0)
    return trial.scaled(trial.spread(stays_G))


def check_epsilon(epsilon: float) -> float:
    """The epsilon of a half-space, or SettingError if there is no such half-space."""
    check_value("epsilon", epsilon, Limits(kind=float, at_least=0, below=1), "OTO uses 0 to 0.95.")
    return epsilon


def _root(falling: Callable[[Tensor], Tensor], longest_G: Tensor, *, halvings: int = 60) -> Tensor:
    """For each group, the r in [0, longest] where a falling function crosses 1; 0 if it starts below."""
    low_G, high_G = torch.zeros_like(longest_G), longest_G.clone()
    for _ in range(halvings):
        middle_G = (low_G + high_G) / 2
        above_G = falling(middle_G) > 1
        low_G, high_G = torch.where(above_G, middle_G, low_G), torch.where(above_G, high_G, middle_G)
    return high_G


def _checked(strengths: Sequence[float]) -> Sequence[float]:
    for strength in strengths:
        if not strength >= 0:
            raise SettingError(f"strength must be at least 0, got {strength}. 0 leaves everything as it is.")
    return strengths
