"""Optimizer steps, and the pull after them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PULLED = torch.tensor([True, False, True, True, False, True])


STRENGTH = 48.0
"""With a learning rate of 0.1: above the norm of some of the units and below that of others."""


def stepped(
    tensors: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, *, seed: int = 1, size: float = 1.0
) -> None:
    """One optimizer step on random gradients."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in tensors.values():
        parameter.grad = size * torch.randn(parameter.shape, generator=generator).to(parameter)
    optimizer.step()


def copies(tensors: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in tensors.items()}


def second_moments(tensors: dict[str, nn.Parameter], optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """Adam's A_t as its paper has it, from the gradients of its first two steps."""
    beta = optimizer.param_groups[0]["betas"][1]
    eps = optimizer.param_groups[0]["eps"]
    return {
        name: (
            optimizer.state[parameter]["exp_avg_sq"] / (1 - beta ** float(optimizer.state[parameter]["step"]))
        ).sqrt()
        + eps
        for name, parameter in tensors.items()
    }
