"""Lightning's own averages of weights: which a trainer has, and the steps that are left without them."""

from __future__ import annotations

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
    epochs = loop.max_epochs
    loop.max_epochs = epochs_of(trainer) or epochs
    try:
        return trainer.estimated_stepping_batches
    finally:
        loop.max_epochs = epochs
