"""A run at one moment: takes its trainer, gives what the view shows and what an epoch's record holds."""

from __future__ import annotations

from typing import Any

from trainonce.runs.report.live import Moment
from trainonce.structure import cost
from trainonce.training.loop.evaluation import Scores
from trainonce.training.loop.trainer import Trainer


def moment_of(trainer: Trainer, *, loss: float, top1: float | None, steps_per_second: float) -> Moment:
    """Where the run is, for the view."""
    pruner = trainer.pruner
    alive = list(pruner.alive.values()) if pruner is not None else []
    return Moment(
        step=trainer.step,
        total_steps=trainer.total_steps,
        epoch=trainer.step / trainer.order.steps_per_epoch,
        epochs=trainer.settings.epochs,
        phase="dense" if pruner is None else str(pruner.phase.value),
        loss=loss,
        lr=trainer.rates.now,
        top1=top1,
        keep_flops=None if pruner is None else pruner.keep_now,
        keep_flops_target=None if pruner is None else pruner.keep_target,
        num_alive=sum(count for count, _ in alive),
        num_units=sum(total for _, total in alive),
        steps_per_second=steps_per_second,
    )


def record_of(trainer: Trainer, scores: Scores) -> dict[str, Any]:
    """What is written down about the epoch that has just ended."""
    pruner = trainer.pruner
    found: dict[str, Any] = {
        "validation_loss": scores.loss,
        "top1": scores.top1,
        "top5": scores.top5,
        "lr": trainer.rates.now,
        "phase": "dense" if pruner is None else str(pruner.phase.value),
        "keep_flops": 1.0,
        "controller_loss": None,
        "num_skipped": trainer.num_skipped,
    }
    if pruner is not None:
        masks = pruner.masks
        found["keep_flops"] = float(cost.macs(pruner.partition, masks)) / pruner.partition.macs
        found["keep_params"] = (
            float(cost.parameters(pruner.partition, masks)) / pruner.partition.num_parameters
        )
        found["controller_loss"] = pruner.controller_loss
        found["alive"] = {name: list(counts) for name, counts in pruner.alive.items()}
    return found
