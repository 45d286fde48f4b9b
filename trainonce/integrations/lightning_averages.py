"""Lightning's own averages of weights: which a trainer has, and the steps of a run without what they add."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Trainer

from trainonce.integrations.lightning_watchers import callbacks_of


def averages_of(trainer: Any) -> list[Any]:
    """The callbacks that hold an average of the module."""
    return list(callbacks_of(trainer, "StochasticWeightAveraging", "WeightAveraging"))


def epochs_of(trainer: Any) -> int | None:
    """The epochs that a trainer means to train; None if it has no limit."""
    epochs = trainer.fit_loop.max_epochs
    if epochs in (None, -1):
        return None
    # Stochastic averaging adds an epoch that only measures the average's batch norms.
    adds = any(vars(average).get("_model_contains_batch_norm") for average in averages_of(trainer))
    return epochs - 1 if adds else epochs


def steps_of(trainer: Trainer) -> int | float:
    """The optimizer steps that a trainer means to make."""
    loop: Any = trainer.fit_loop
    epochs, wanted = loop.max_epochs, epochs_of(trainer)
    loop.max_epochs = wanted or epochs
    try:
        steps = trainer.estimated_stepping_batches
    finally:
        loop.max_epochs = epochs
    num_batches = trainer.num_training_batches
    for scheduler in callbacks_of(trainer, "GradientAccumulationScheduler"):
        # The trainer's own estimate takes the first epoch for all of them.
        if wanted is not None and num_batches < math.inf:
            accumulated = [scheduler.get_accumulate_grad_batches(epoch) for epoch in range(wanted)]
            steps = min(steps, sum(math.ceil(num_batches / count) for count in accumulated))
    return steps
