"""Runs with averaged copies that are cut with the model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import trainonce
from support.digits import attached, convolutional
from trainonce import Schedule
from trainonce.pruning import policies

SCHEDULE = Schedule(search_from=5, shrink_from=10, first_cut_from=20, settle_from=35, update_every=1)


STEPS = 60


WIDTH = 13
"""Of models in these tests only: what another test has left alive is no copy of them."""


def begun(**settings: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = convolutional(WIDTH)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def with_pruner(model: nn.Module, optimizer: Any, **settings: Any) -> trainonce.Pruner:
    return attached(
        model, optimizer, STEPS, **{"policy": policies.FilterNorm(), "schedule": SCHEDULE} | settings
    )


class Caching:
    """An average that lists its tensors and the model's once, and then trusts the lists."""

    def __init__(self, model: nn.Module) -> None:
        self.ema = copy.deepcopy(model).eval().requires_grad_(False)
        self.pairs: tuple[list[Tensor], list[Tensor]] | None = None
        self.updates = 0

    def update(self, model: nn.Module) -> None:
        self.updates += 1
        if self.pairs is None:
            mine, theirs = self.ema.state_dict(), model.state_dict()
            names = [name for name in mine if mine[name].is_floating_point()]
            self.pairs = [mine[name] for name in names], [theirs[name] for name in names]
        torch._foreach_lerp_(self.pairs[0], self.pairs[1], 0.1)


def averaging(**settings: Any) -> Callable[[nn.Module], AveragedModel]:
    return lambda model: AveragedModel(model, **settings)
