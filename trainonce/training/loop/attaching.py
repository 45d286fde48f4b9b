"""The pruner of a run, as its settings ask for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainonce.pruning.attachment import attach
from trainonce.pruning.method import Method
from trainonce.pruning.pruner import Pruner
from trainonce.training.settings import Settings


def attach_by(
    settings: Settings,
    method: Method,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    example: Any,
    total_steps: int,
) -> Pruner:
    """A pruner of `model` with the budget that the settings name."""
    return attach(
        model,
        optimizer,
        example=example,
        total_steps=total_steps,
        keep_flops=settings.keep_flops,
        keep_params=settings.keep_params,
        protect=settings.protect,
        streams=settings.streams,
        round_to=settings.round_to,
        uniform=settings.uniform,
        method=method,
        seed=settings.seed,
    )
