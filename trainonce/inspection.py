"""`inspect` a model, and `cut` it: the two halves of taking channels out, each with its proof."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainonce import proof
from trainonce.channels import Example, Partition, WrongPlan
from trainonce.comparison import can_be_compared, relative_difference
from trainonce.execution import one_line
from trainonce.plan import Plan
from trainonce.surgery import apply_plan, check_fits, check_owned, silence, snapshot
from trainonce.tracing import assembly, contraction, convolution, movement, normalization  # noqa: F401 - registers the rules
from trainonce.tracing.contradictions import keep_contradicted, random_masks
from trainonce.tracing.partition import (
    SizeSolver,
    build_partition,
    keep_before_branches,
    keep_matching,
    number_channels,
    parameter_order,
)
from trainonce.tracing.record import record
from trainonce.tracing.recording import Recording
from trainonce.tracing.tracer import ValueNeeded


class UnusableModel(ValueError):
    """A model or example that can't be inspected."""


def inspect(model: nn.Module, example: Example, *, keep: Sequence[str] = ()) -> Partition:
    """All channels of `model` in groups: which may be cut, which are kept and why, and what each costs.

    The model runs on `example` as it is and is left as it was. `keep` names modules whose channels must stay.

    Example: `print(trainonce.inspect(model, torch.randn(1, 3, 224, 224)))`.
    """
    _check_arguments(model, example, keep)
    with proof.modes_kept(model):
        recording, needs_values = record_evaluation(model, example)
        record_training(model, example, recording, needs_values=needs_values)
        recording.answers.clear()
        keep_matching(recording, keep)

        solver = keep_contradicted(recording, parameter_order(model))
        model.eval()
        return _proven_partition(model, solver, example)


def cut(model: nn.Module, plan: Plan, *, optimizer: torch.optim.Optimizer | None = None) -> nn.Module:
    """Remove what the plan drops from the model, in place, with its gradients and the optimizer's state; returns the model.

    The cut proves itself on the plan's example: same outputs as with the dropped channels silent, and a backward pass.
    If it can't, WrongPlan is raised and everything is as before.

    Example: `trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5), optimizer=optimizer)`.
    """
    check_fits(model, plan)
    if optimizer is not None:
        check_owned(optimizer, model)
    restore = snapshot(model, optimizer)
    try:
        with proof.modes_kept(model):
            model.eval()
            if plan.example is None:
                apply_plan(model, plan, optimizer=optimizer)
            else:
                _cut_and_prove(model, plan, plan.example, optimizer, restore)
    except BaseException as error:
        restore()
        if not isinstance(error, Exception) or isinstance(error, WrongPlan):
            raise
        way_out = "The model is unchanged; keep the layer concerned with keep=[...]."
        raise WrongPlan(f"the cut model does not run ({one_line(error)}). {way_out}") from error
    return model


def _cut_and_prove(
    model: nn.Module, plan: Plan, example: Example, optimizer: torch.optim.Optimizer | None, restore: Callable[[], None]
) -> None:
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    refusal = proof.backward_refusal(model, example)
    for name in {axis_cut.tensor for axis_cut in plan.cuts if axis_cut.silenced}:
        # A copy: the caller puts the data back if the proof fails.
        tensors[name].data = tensors[name].data.clone()
    silence(model, plan)
    before = proof.outputs_of(model, example)
    if not can_be_compared(before):
        raise WrongPlan(
            "the model's output on the example is NaN, so no cut can be proven. It is unchanged; its weights, its buffers or the "
            "example are not finite."
        )
    apply_plan(model, plan, optimizer=optimizer)
    difference = relative_difference(before, proof.outputs_of(model, example))
    dtype = next((tensor.dtype for tensor in before if tensor.is_floating_point()), torch.float32)
    if difference > proof.TOLERANCE.get(dtype, 5e-2):
        # Scores that rounding makes equal may be sorted either way: only float64 can tell.
        restore()
        if dtype is torch.float64 or not proof.agrees_in_double(model, plan, example):
            raise WrongPlan(
                f"the cut model differs from the silenced one by {difference:.1e} of the output's scale. It is unchanged; inspect it again."
            )
        apply_plan(model, plan, optimizer=optimizer)
    if refusal is None and (refusal := proof.backward_refusal(model, example)):
        raise WrongPlan(f"no gradient flows through the cut model ({refusal}). It is unchanged; inspect it again.")


def _check_arguments(model: Any, example: Any, keep: Any) -> None:
    if not isinstance(model, nn.Module):
        raise UnusableModel(f"inspect needs an nn.Module, got {type(model).__name__}. Build the model first.")
    if next(model.parameters(), None) is None:
        raise UnusableModel(f"{type(model).__name__} has no parameters, so there is nothing to cut. Give a model with layers.")
    if not isinstance(example, Tensor | tuple | dict):
        raise UnusableModel(
            f"inspect needs an example to run the model on, got {type(example).__name__}. "
            f"Give a tensor, a tuple of inputs, or a dict of keyword inputs."
        )
    if isinstance(keep, str) or not isinstance(keep, Sequence) or not all(isinstance(pattern, str) for pattern in keep):
        raise UnusableModel(f"keep must be a list of patterns, got {keep!r}. Write for example keep=['head*'].")


def record_evaluation(model: nn.Module, example: Example) -> tuple[Recording, bool]:
    """What the model does in eval mode, and whether it had to be computed in full to see it. Leaves it in that mode."""
    model.eval()
    if not any(parameter.is_meta for parameter in model.parameters()):
        recording = Recording()
        # Whatever fails without values, not only the asking for one, is tried again with them.
        with suppress(Exception):
            record(model, example, recording, counts_cost=True, with_values=False)
            return recording, False
    recording = Recording()
    try:
        record(model, example, recording, counts_cost=True, with_values=True)
    except Exception as error:
        words = f"{type(error).__name__}: {one_line(error)}"
        raise UnusableModel(f"{type(model).__name__} fails on the example ({words}). Give an example that the model accepts.") from error
    return recording, True


def record_training(model: nn.Module, example: Example, recording: Recording, *, needs_values: bool) -> None:
    """Add what exists only in training, which reads channels too. Leaves the model in that mode."""
    idle = [name for name, parameter in model.named_parameters() if name not in recording.used and parameter.numel() > 1]
    problem = ""
    for with_values, attempt in itertools.product((False, True), (example, _doubled(example))):
        if needs_values and not with_values:
            continue
        model.train()
        try:
            record(model, attempt, recording, counts_cost=False, with_values=with_values)
        except Exception as error:
            problem = one_line(error)
            needs_values |= isinstance(error, ValueNeeded)
        else:
            break
    else:
        recording.notes.append(f"training mode could not be recorded on this example ({problem}); what only it uses was not seen")
    idle = [name for name in idle if name not in recording.used]
    keep_before_branches(recording, idle)
    if idle:
        recording.notes.append(f"{len(idle)} parameters are never used on this example, {idle[0]} the first; they are left alone")


def _doubled(example: Example) -> Example:
    """Batch norm in training needs more than one sample."""
    return tree_map_only(Tensor, lambda tensor: torch.cat([tensor, tensor]) if tensor.dim() else tensor, example)


def _proven_partition(model: nn.Module, solver: SizeSolver, example: Example) -> Partition:
    """The partition; groups whose cut moves the output, tried on scratch weights, are kept with that reason."""
    recording = solver.recording
    partition = build_partition(model, solver, example)
    dtypes = proof.proving_dtypes(model)
    while partition.prunable_groups:
        bad = _unproven(model, partition, dtypes)
        if not bad:
            break
        for group in partition.groups:
            if group.name in bad:
                part = group.slices[0]
                recording.book.keep(recording.slots[part.tensor, part.axis][part.positions], bad[group.name])
        solver = SizeSolver(recording, number_channels(recording, parameter_order(model)), solver.checks)
        partition = build_partition(model, solver, example)
    return partition


def _unproven(model: nn.Module, partition: Partition, dtypes: list[torch.dtype | None]) -> dict[str, str]:
    """The groups that fail the proof in the best precision that the model runs in, with the reason."""
    masks = random_masks(partition.groups, 4)

    def complaint(names: list[str], dtype: torch.dtype | None, tolerance: float) -> str | None:
        try:
            plan = Plan.from_masks(partition, {name: masks[name] for name in names})
            difference = proof.difference_on_scratch(model, plan, partition.example, dtype)
        except Exception as error:
            return f"the proof failed, the cut model does not run ({one_line(error)})"
        return None if difference <= tolerance else f"the proof failed, cutting it moves the output by {difference:.1e} of its scale"

    own = _precision(model)
    quick = proof.quick_tolerance(own, partition.macs)
    if quick > 0 and complaint(list(masks), None, quick) is None:
        return {}
    idle = None
    for dtype in dtypes:
        in_precision = partial(complaint, dtype=dtype, tolerance=proof.TOLERANCE.get(dtype or own, 5e-2))
        if in_precision(list(masks)) is None:
            return {}
        # A model that fails with nothing cut says nothing about any group: try its own precision.
        idle = in_precision([])
        if idle is None:
            return proof.failing(list(masks), in_precision)
    return dict.fromkeys(masks, idle or "the proof could not run")


def _precision(model: nn.Module) -> torch.dtype:
    return next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), torch.float32)
