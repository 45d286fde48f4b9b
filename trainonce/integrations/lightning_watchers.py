"""Lightning callbacks that compare a whole training: what they do not know of cuts is told to them here.

Classes are those of `lightning.pytorch` and of `pytorch_lightning`, which are different ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from trainonce.errors import PrunerError
from trainonce.pruning.guards.living import imported

_PACKAGES = ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks")


def callbacks_of(trainer: Any, *names: str) -> Iterator[Any]:
    """A trainer's callbacks of Lightning's classes with these names."""
    kinds = tuple(imported(f"{package}.{name}" for package in _PACKAGES for name in names))
    return (callback for callback in trainer.callbacks if isinstance(callback, kinds))


def check_company(trainer: Any) -> None:
    """Raise PrunerError if the trainer tries steps out before it trains, or prunes in another way, too."""
    for tuner in callbacks_of(trainer, "LearningRateFinder", "BatchSizeFinder"):
        raise PrunerError(
            f"{type(tuner).__name__} trains the module to try things out, which the pruner would take for "
            "the run. Tune first, with a Trainer without TrainOnceCallback."
        )
    for other in callbacks_of(trainer, "ModelPruning"):
        raise PrunerError(
            f"{type(other).__name__} keeps a mask for each weight, which would not follow a cut. Leave one "
            "of the two callbacks out."
        )


def forget_scores(trainer: Any) -> None:
    """Forget the best scores: those of a model of another size are no rivals, nor could it be loaded."""
    for callback in callbacks_of(trainer, "ModelCheckpoint"):
        if callback.monitor is not None:
            vars(callback).update(
                best_k_models={},
                best_model_path="",
                best_model_score=None,
                kth_best_model_path="",
                kth_value=_worst(callback),
            )
    for callback in callbacks_of(trainer, "EarlyStopping"):
        callback.wait_count, callback.best_score = 0, _worst(callback)


def hold_stopping(trainer: Any) -> None:
    """Let nobody lose patience before the model is small: while it is pulled, its score may not improve."""
    for callback in callbacks_of(trainer, "EarlyStopping"):
        # Lower than what it counts until the next batch.
        callback.wait_count = -2 - callback.patience


def _worst(callback: Any) -> torch.Tensor:
    return torch.tensor(torch.inf if callback.mode == "min" else -torch.inf)
