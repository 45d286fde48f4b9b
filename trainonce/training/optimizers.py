"""Optimizers by name, as `--opt` takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter], Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters, s: torch.optim.SGD(
        parameters, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov
    ),
    "adam": lambda parameters, s: torch.optim.Adam(parameters, lr=s.lr, weight_decay=s.weight_decay),
    "adamw": lambda parameters, s: torch.optim.AdamW(parameters, lr=s.lr, weight_decay=s.weight_decay),
    "nadam": lambda parameters, s: torch.optim.NAdam(parameters, lr=s.lr, weight_decay=s.weight_decay),
    "rmsprop": lambda parameters, s: torch.optim.RMSprop(
        parameters, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay
    ),
}
"""Each name makes an optimizer from the parameters and the settings."""
