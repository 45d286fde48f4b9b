"""trainonce in a training: takes what `attach` takes, gives the pruner."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

import trainonce
from benchmarks.harness.images import Images


def attach(model: nn.Module, optimizer: Optimizer, **settings: Any) -> trainonce.Pruner:
    """`trainonce.attach` without its warning: how long a run is has other reasons here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trainonce.ShortRunWarning)
        return trainonce.attach(model, optimizer, **settings)


def held_loss(model: nn.Module, images: Images, *, seed: int, step: int, batch_size: int) -> Tensor:
    """The loss on a batch that is held for the controller."""
    held, labels = images.held_batch(seed=seed, step=step, batch_size=batch_size)
    return cross_entropy(model(held), labels)
