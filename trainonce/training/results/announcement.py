"""The first lines of a run: data, model, budget and schedule, so that a wrong setup shows at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainonce.pruning.pruner import FEW_UPDATES
from trainonce.structure.table import in_units
from trainonce.training.batches.sources import Source
from trainonce.training.loop.learning_rate import shown
from trainonce.training.loop.trainer import Trainer
from trainonce.training.methods import DEFAULT_METHOD
from trainonce.training.teachers import teacher_line

LARGEST_ADVICE = 1_000_000
"""In epochs; nobody trains longer."""


def describe_data(data: Any, train: Source, validation: Source) -> list[str]:
    """The data's own `summary`, or its numbers of samples, classes and pixels."""
    said = getattr(data, "summary", None)
    if isinstance(said, str):
        return [said]
    if isinstance(said, Sequence) and said:
        return [str(line) for line in said]
    line = f"{len(train.samples)} training and {len(validation.samples)} validation samples"
    if train.drawing is not None:
        line += f", {train.drawing.num_draws} drawn per epoch by the DataLoader's sampler"
    if isinstance(classes := getattr(data, "classes", None), tuple | list):
        line += f", {len(classes)} classes"
    if isinstance(size := getattr(data, "image_size", None), int):
        line += f", {size} x {size} pixels"
    return [line]


def first_lines(
    trainer: Trainer,
    *,
    name: str,
    data: Sequence[str],
    before: Mapping[str, Any],
    start: str,
    device: torch.device,
) -> list[str]:
    """Lines about data, model, start, budget and run."""
    settings, order = trainer.settings, trainer.order
    flops = (
        "unknown FLOPs"
        if before["macs"] is None
        else f"{in_units(before['macs'])} FLOPs (multiply-adds of one sample)"
    )
    length = f"{_count(settings.epochs, 'epoch')} of {_count(order.steps_per_epoch, 'step')}"
    threads = f" ({_count(torch.get_num_threads(), 'thread')})" if device.type == "cpu" else ""
    optimizer = f"{type(trainer.optimizer).__name__} at learning rate {shown(trainer.rates.own)}"
    return [
        *(f"data: {line}" for line in data),
        f"model: {name}, {flops}, {in_units(before['parameters'])} parameters",
        f"start: {start}",
        *([] if trainer.lessons is None else [f"teacher: {teacher_line(trainer.lessons)}"]),
        f"budget: {_budget(trainer, before)}",
        f"run: {length}, batch size {order.batch_size}, {optimizer}, on {device}{threads}",
    ]


def few_updates_line(trainer: Trainer) -> str | None:
    """How many epochs the controller would need, if the run is too short for it; None otherwise."""
    policy = None if trainer.pruner is None else trainer.pruner.policy
    if trainer.pruner is None or policy is None or not (policy.uses_loss and policy.learns):
        return None
    schedule, per_epoch, epochs = (
        trainer.pruner.schedule,
        trainer.order.steps_per_epoch,
        trainer.settings.epochs,
    )
    num_updates = schedule.in_steps(trainer.total_steps).num_updates
    if num_updates >= FEW_UPDATES:
        return None
    longer = range(epochs, LARGEST_ADVICE)
    enough = longer[0] + bisect_left(
        longer, FEW_UPDATES, key=lambda count: schedule.in_steps(count * per_epoch).num_updates
    )
    return (
        f"few controller updates ({num_updates}): the choice of channels stays close to its starting point; "
        f"{enough} epochs would give enough ({FEW_UPDATES})"
    )


def _budget(trainer: Trainer, before: Mapping[str, Any]) -> str:
    settings = trainer.settings
    if trainer.pruner is None:
        return "none, the dense model is trained"
    share, what, whole = (
        (settings.keep_flops, "FLOPs", before["macs"])
        if settings.keep_flops is not None
        else (settings.keep_params, "parameters", before["parameters"])
    )
    assert share is not None
    at_most = "" if whole is None else f", at most {in_units(share * whole)}"
    name = trainer.method.name
    by = "" if name == DEFAULT_METHOD else f", by the method {name}"
    return f"{100 * share:g} % of the {what}{at_most}{by}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
