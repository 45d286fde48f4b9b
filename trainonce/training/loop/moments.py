"""A trainer's state as the view shows it and as the records hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainonce.runs.report.live import Moment
from trainonce.structure import cost
from trainonce.training.loop.evaluation import Scores
from trainonce.training.loop.trainer import Trainer


def moment_of(trainer: Trainer, *, loss: float, last: Mapping[str, Any], steps_per_second: float) -> Moment:
    """The current state of the run, for the view; `last` is the last epoch's record."""
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
        top1=last.get("top1"),
        metrics=last.get("metrics") or {},
        keep_flops=None if pruner is None else pruner.keep_now,
        keep_flops_target=None if pruner is None else pruner.keep_target,
        num_alive=sum(count for count, _ in alive),
        num_units=sum(total for _, total in alive),
        steps_per_second=steps_per_second,
    )


def record_of(trainer: Trainer, scores: Scores) -> dict[str, Any]:
    """The record of the epoch that has just ended."""
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
        **({"metrics": dict(scores.metrics)} if scores.metrics else {}),
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


def schedule_of(trainer: Trainer, *, first_cut_at: int | None, cut_at: int | None) -> dict[str, Any]:
    """When the phases begin and the cuts were made, in steps; `cut_at` is the cut to the final size."""
    phases: dict[str, int | None] = {}
    if trainer.pruner is not None:
        timetable = trainer.pruner.schedule.in_steps(trainer.total_steps)
        phases = {
            "search": timetable.search_from,
            "shrink": timetable.shrink_from,
            "settle": timetable.settle_from,
            "small": cut_at,
        }
    return {
        "steps_per_epoch": trainer.order.steps_per_epoch,
        "total_steps": trainer.total_steps,
        "phases": phases,
        "cuts": [step for step in (first_cut_at, cut_at) if step is not None],
    }
