"""Pruners attached without a word about short runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import trainonce
from support.digits import attached
from trainonce import Schedule
from trainonce.pruning import policies


def sgd_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def num_hooks(optimizer: torch.optim.Optimizer) -> int:
    return len(optimizer._optimizer_step_post_hooks) + len(optimizer._optimizer_step_pre_hooks)


def quiet_run(model: nn.Module, optimizer: Any, total_steps: int = 60, **settings: Any) -> trainonce.Pruner:
    """A short run whose policy needs no loss."""
    settings = {"policy": policies.FilterNorm(), "schedule": Schedule.paper()} | settings
    return attached(model, optimizer, total_steps, **settings)
