"""Validation of a checkpoint's state before any of it is restored.

Checksums show that a file is intact, not that this run wrote it. A state that is refused here leaves the
trainer untouched, so that an older checkpoint can be tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from trainonce.errors import CheckpointError, PrunerError
from trainonce.messages.plain_text import quoted, shown
from trainonce.pruning.pruner import Pruner
from trainonce.runs.folder import COLUMNS
from trainonce.storage.checkpoint import Bounds
from trainonce.storage.checkpoint.packing import pack
from trainonce.storage.likeness import (
    MismatchError,
    Shapes,
    check_alike,
    check_optimizer,
    check_weights,
    is_count,
    is_number,
)
from trainonce.structure.plan import Plan
from trainonce.teaching.lessons import check_same_teaching
from trainonce.training.loop.trainer import Trainer

FIELDS = ("trainer", "history", "seconds", "cut_at", "loss")


def bounds_of(trainer: Trainer) -> Bounds:
    """Upper bounds on the size of this run's checkpoints."""
    _, tensors = pack(trainer.state_dict())
    names = sum(len(name) + 128 for name in tensors)
    groups = (
        0
        if trainer.pruner is None
        else sum(6 * len(group.name) + 128 for group in trainer.pruner.partition.groups)
    )
    return Bounds(
        state_bytes=2**20 + 32 * names + trainer.settings.epochs * (4096 + groups),
        # Most optimizers keep one or two tensors per parameter, some a few more.
        tensor_bytes=2**24 + 32 * names + 16 * sum(tensor.nbytes for tensor in tensors.values()),
    )


def check_saved(step: int, state: Any, trainer: Trainer) -> None:
    """Raise CheckpointError unless this run could have saved this state at this step."""
    try:
        check_alike(state, {}, "the state")
        check_alike({key: state[key] for key in FIELDS if key in state}, dict.fromkeys(FIELDS), "the state")
        _check_trainer(step, state["trainer"], trainer)
        _check_history(state["history"], step, trainer.order.steps_per_epoch)
        _check_rest(state, step)
    except (MismatchError, PrunerError) as error:
        raise CheckpointError(
            f"this is not a state of this run ({shown(error, most=400).removesuffix('.')})"
        ) from None


def _check_trainer(step: int, found: Any, trainer: Trainer) -> None:
    template = trainer.state_dict()
    check_same_teaching(trainer.lessons, found.get("teacher") if isinstance(found, Mapping) else None)
    check_alike(found, {key: None for key in template}, "trainer")
    mine = type(trainer.optimizer).__name__
    if found["optimizer_class"] != mine:
        raise MismatchError(
            f"the run was trained by {quoted(found['optimizer_class'])}, and the optimizer is {mine}"
        )
    for name in ("step", "num_skipped", "num_bad_in_row"):
        if not is_count(found[name], trainer.total_steps):
            raise MismatchError(f"trainer/{name} is {quoted(found[name])} of {trainer.total_steps} steps")
    if found["step"] != step:
        raise MismatchError(f"trainer/step is {found['step']} in the checkpoint of step {step}")
    cuts: list[Tensor] = []
    if trainer.pruner is not None:
        trainer.pruner.check_state(found["pruner"])
        cuts = found["pruner"]["cuts"]
        if found["pruner"]["num_steps"] > step:
            raise MismatchError(f"the pruner has made {found['pruner']['num_steps']} steps by step {step}")
    shapes = _shapes_after(trainer.model, trainer.pruner, cuts[-1] if cuts else None)
    check_weights(found["model"], trainer.model, shapes, "trainer/model")
    if trainer.average is not None:
        check_alike(found["average"], template["average"] | {"model": {}}, "trainer/average")
        if not is_count(found["average"]["num_updates"], trainer.total_steps):
            raise MismatchError(f"trainer/average/num_updates is {quoted(found['average']['num_updates'])}")
        check_weights(found["average"]["model"], trainer.average.model, shapes, "trainer/average/model")
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    parameters = [parameter for group in trainer.optimizer.param_groups for parameter in group["params"]]
    own = [shapes.get(names.get(id(parameter), ""), tuple(parameter.shape)) for parameter in parameters]
    check_optimizer(found["optimizer"], trainer.optimizer, own, "trainer/optimizer")
    for key in template.keys() - {
        "step",
        "num_skipped",
        "num_bad_in_row",
        "pruner",
        "model",
        "average",
        "optimizer",
        "teacher",
    }:
        check_alike(found[key], template[key], f"trainer/{key}")


def _shapes_after(model: nn.Module, pruner: Pruner | None, cut: Tensor | None) -> Shapes:
    """The shape of every tensor of the model after a cut, under each of its names."""
    own = model.state_dict(keep_vars=True)
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items() if isinstance(tensor, Tensor)}
    if pruner is None or cut is None:
        return shapes
    sizes = {name: len(mask) for name, mask in pruner.masks.items()}
    plan = Plan.from_masks(pruner.partition, dict(zip(sizes, cut.split(list(sizes.values())), strict=True)))
    after = {name: list(shape) for name, shape in plan.shapes.items()}
    for axis_cut in plan.cuts:
        after[axis_cut.tensor][axis_cut.axis] = len(axis_cut.kept)
    first = {id(tensor): name for name, tensor in [*model.named_buffers(), *model.named_parameters()]}
    changed = {axis_cut.tensor for axis_cut in plan.cuts}
    return {
        name: tuple(after[first[id(own[name])]]) if first.get(id(own[name])) in changed else shape
        for name, shape in shapes.items()
    }


def _check_history(found: Any, step: int, steps_per_epoch: int) -> None:
    check_alike(found, [], "history")
    # A run that is interrupted in the last step of an epoch has no record of it yet.
    if len(found) not in (step // steps_per_epoch, (step - 1) // steps_per_epoch):
        raise MismatchError(f"history has {len(found)} records at step {step}")
    for place, record in enumerate(found):
        where = f"history/{place}"
        check_alike(record, {}, where)
        for name in COLUMNS:
            value = record.get(name, ...)
            if not (isinstance(value, str) if name == "phase" else value is None or is_number(value)):
                raise MismatchError(f"{where}/{name} is {'missing' if value is ... else quoted(value)}")
        if (record["epoch"], record["step"]) != (place + 1, (place + 1) * steps_per_epoch):
            raise MismatchError(
                f"{where} is of epoch {quoted(record['epoch'])} and step {quoted(record['step'])}"
            )
        _check_plain(record, where)
        _check_alive(record.get("alive", {}), f"{where}/alive")
        _check_metrics(record.get("metrics", {}), f"{where}/metrics")


def _check_plain(value: Any, where: str) -> None:
    """Records are written as JSON, so they may hold nothing else."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                raise MismatchError(f"{where} has an unknown entry {shown(key)}")
            _check_plain(part, where)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_plain(part, where)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise MismatchError(f"{where} holds a {type(value).__name__}")


def _check_alive(found: Any, where: str) -> None:
    check_alike(found, {}, where)
    for name, counts in found.items():
        if not (
            isinstance(counts, list | tuple)
            and len(counts) == 2
            and all(is_count(count, 2**62) for count in counts)
        ):
            raise MismatchError(f"{where}/{shown(name)} is {quoted(counts)}, not two counts")


def _check_metrics(found: Any, where: str) -> None:
    check_alike(found, {}, where)
    for name, value in found.items():
        if not is_number(value):
            raise MismatchError(f"{where}/{shown(name)} is {quoted(value)}, not a number")


def _check_rest(state: Mapping[str, Any], step: int) -> None:
    seconds, loss = state["seconds"], state["loss"]
    if not is_number(seconds) or not math.isfinite(seconds) or seconds < 0:
        raise MismatchError(f"seconds is {quoted(seconds)}")
    for name in ("first_cut_at", "cut_at"):
        if state.get(name) is not None and not is_count(state[name], step):
            raise MismatchError(f"{name} is {quoted(state[name])} at step {step}")
    if not (isinstance(loss, tuple) and len(loss) == 2 and is_number(loss[0]) and is_count(loss[1], step)):
        raise MismatchError(f"loss is {quoted(loss)}")
