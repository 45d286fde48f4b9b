"""Pure operators that pull groups of numbers to zero.

The proximal map of the group lasso, the same in Adam's metric, and OTO's half-space projection.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def shrink_groups(groups_GD: Tensor, strength: float) -> Tensor:
    """Pull every row towards zero by `strength`; rows shorter than that become zero.

    This is the proximal map of the group lasso,

        argmin_z  1/2 |z - x|^2 + strength * sum_g |z_g|

    whose answer is  x_g * max(0, 1 - strength / |x_g|).

    Shapes: G groups, D numbers in each.
    """
    norm_G = groups_GD.norm(dim=1)
    return groups_GD * shrink_scale(norm_G, torch.full_like(norm_G, _checked(strength)))[:, None]


def shrink_scale(norm_G: Tensor, strength_G: Tensor) -> Tensor:
    """The factor by which the proximal map of the group lasso scales groups of these norms.

    Max(0, 1 - strength / norm).
    """
    # A group that is already zero stays zero; dividing by its norm would give NaN.
    return (1 - strength_G / norm_G.clamp_min(torch.finfo(norm_G.dtype).tiny)).clamp(0, 1)


def shrink_groups_in_metric(groups_GD: Tensor, metric_GD: Tensor, strength: float) -> Tensor:
    """The proximal map of the group lasso when distance is measured by a positive diagonal metric A.

        argmin_z  1/2 (z - x)^T A (z - x) + strength * sum_g |z_g|

    Its answer is zero where |A x| <= strength; elsewhere z = A x * r / (A r + strength), where r = |z| is the
    root of a falling function.

    Shapes: G groups, D numbers in each.
    """
    if bool((metric_GD <= 0).any()):
        raise ValueError("the metric must be positive everywhere. Add epsilon to it, as Adam does.")
    pulled_GD = metric_GD * groups_GD
    strength_G = groups_GD.new_full((len(groups_GD),), _checked(strength))

    def secular(radius_G: Tensor) -> Tensor:
        return (pulled_GD / (metric_GD * radius_G[:, None] + strength_G[:, None])).square().sum(dim=1)

    radius_G1 = metric_radius(secular, groups_GD.norm(dim=1))[:, None]
    shrunk_GD = pulled_GD * radius_G1 / (metric_GD * radius_G1 + strength_G[:, None])
    return torch.where(
        pulled_GD.norm(dim=1, keepdim=True) <= strength_G[:, None], torch.zeros_like(shrunk_GD), shrunk_GD
    )


def metric_radius(secular: Callable[[Tensor], Tensor], longest_G: Tensor, *, halvings: int = 60) -> Tensor:
    """For each group the r in [0, longest] with secular(r) = 1, or 0 if secular(0) <= 1.

    Secular must fall with r.
    """
    low_G, high_G = torch.zeros_like(longest_G), longest_G.clone()
    for _ in range(halvings):
        middle_G = (low_G + high_G) / 2
        above_G = secular(middle_G) > 1
        low_G, high_G = torch.where(above_G, middle_G, low_G), torch.where(above_G, high_G, middle_G)
    return high_G


def half_space(trial_GD: Tensor, before_GD: Tensor, epsilon: float) -> Tensor:
    """OTO's half-space projection.

    Rows of the trial point that left the half-space around the point before become zero.

        z_g <- 0  if  <z_g, x_g> < epsilon * |x_g|^2

    Shapes: G groups, D numbers in each.
    """
    if not 0 <= epsilon < 1:
        raise ValueError(
            f"epsilon must be at least 0 and below 1, got {epsilon}. OTO uses values from 0 to 0.95."
        )
    stays_G = stays_in_half_space((trial_GD * before_GD).sum(dim=1), before_GD.square().sum(dim=1), epsilon)
    return torch.where(stays_G[:, None], trial_GD, torch.zeros_like(trial_GD))


def stays_in_half_space(product_G: Tensor, square_G: Tensor, epsilon: float) -> Tensor:
    """Whether <z, x> >= epsilon * |x|^2, from the product and the square of each group."""
    return product_G >= epsilon * square_G


def _checked(strength: float) -> float:
    if not strength >= 0:
        raise ValueError(f"strength must not be negative, got {strength}. Zero leaves everything as it is.")
    return strength
