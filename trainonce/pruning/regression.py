"""Least squares between channels: what those that stay can say about those that go."""

from __future__ import annotations

import torch
from torch import Tensor

RIDGE = 1e-2
"""Of the mean square of a channel: what keeps the solution near the weights as they are."""


def channel_map(
    before_NC: Tensor, after_NK: Tensor, kept_K: Tensor, *, has_bias: bool
) -> tuple[Tensor, Tensor]:
    """The map A, b from the channels that stay to all channels as they were.

        argmin_A  |X - X' A^T - b|^2 / N + ridge * |A - A_0|^2

    X is what a layer read before, X' what it reads of the channels that stay, A_0 keeps those as they are and
    says nothing about the others. Without a bias to put it in, b is zero.

    Shapes: N samples, C channels before, K after. Returns A (C, K) and b (C) in float64 on the CPU.
    """
    before_NC, after_NK = before_NC.float(), after_NK.float()
    mean_C = before_NC.mean(dim=0) if has_bias else torch.zeros_like(before_NC[0])
    mean_K = after_NK.mean(dim=0) if has_bias else torch.zeros_like(after_NK[0])
    centered_NK = after_NK - mean_K
    left_NC = before_NC - mean_C
    # The part that A_0 explains is taken off first; the rest is small, and so is its rounding.
    left_NC = left_NC.index_add(1, kept_K.to(left_NC.device), centered_NK, alpha=-1)
    square_KK = (centered_NK.T @ centered_NK).double().cpu() / len(centered_NK)
    shared_KC = (centered_NK.T @ left_NC).double().cpu() / len(centered_NK)
    scale = square_KK.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    square_KK.diagonal().add_(RIDGE * scale)
    map_CK = torch.linalg.solve(square_KK, shared_KC).T.contiguous()
    map_CK[kept_K.cpu(), torch.arange(len(kept_K))] += 1
    return map_CK, mean_C.double().cpu() - map_CK @ mean_K.double().cpu()


def weight_through(weight: Tensor, map_CK: Tensor) -> Tensor:
    """The weight (outputs, C, ...) that reads through the map: (outputs, K, ...)."""
    moved = weight.detach().double().cpu().movedim(1, -1) @ map_CK
    return moved.movedim(-1, 1).to(weight)


def bias_through(weight: Tensor, shift_C: Tensor) -> Tensor:
    """What a constant in each channel adds to each output, away from the borders."""
    total = (
        weight.detach().double().cpu().flatten(2).sum(dim=2)
        if weight.dim() > 2
        else weight.detach().double().cpu()
    )
    return (total @ shift_C).to(weight)
