"""Lightning's own averages of weights: which a trainer has, and the steps that are left without them."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging


def averages_of(trainer: Any) -> list[Callback]:
    """The callbacks that hold an average of the module."""
    kinds = StochasticWeightAveraging | WeightAveraging
    return [callback for callback in trainer.callbacks if isinstance(callback, kinds)]


def steps_of(trainer: Trainer) -> int | float:
    """The optimizer steps that a trainer means to make."""
    loop: Any = trainer.fit_loop
    epochs = loop.max_epochs
    # Stochastic averaging adds an epoch that only measures the average's batch norms.
    adds = any(vars(average).get("_model_contains_batch_norm") for average in averages_of(trainer))
    if adds and epochs not in (None, -1):
        loop.max_epochs = epochs - 1
    try:
        return trainer.estimated_stepping_batches
    finally:
        loop.max_epochs = epochs
