"""Short runs on digits that have just been attached, as tests of resuming use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import trainonce
from support.digits import attached, convolutional
from trainonce import Schedule

TOTAL_STEPS = 110
SCHEDULE = Schedule(search_from=10, shrink_from=25, settle_from=64, update_every=1)

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
}


def begun(
    make_optimizer: Callable[[Any], torch.optim.Optimizer], settings: dict[str, Any]
) -> tuple[nn.Module, Any, trainonce.Pruner]:
    model = convolutional(6)
    optimizer = make_optimizer(model.parameters())
    settings = {"schedule": SCHEDULE, "round_to": 1} | settings
    if "policy" in settings:
        settings["policy"] = settings["policy"]()
    return model, optimizer, attached(model, optimizer, TOTAL_STEPS, **settings)
