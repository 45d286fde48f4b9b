"""`inspect` a model, then `cut` it; both prove what they claim on the example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import ModelError, PlanError
from trainonce.execution.comparison import can_be_compared, relative_difference
from trainonce.execution.restoring import modes_kept, snapshot
from trainonce.messages.plain_text import reason_of, shorten
from trainonce.structure.channels import Example
from trainonce.structure.partition import Partition
from trainonce.structure.plan import Plan
from trainonce.surgery import proof
from trainonce.surgery.fitting import check_fits
from trainonce.surgery.norms import folded, unfolded
from trainonce.surgery.optimizer_state import check_owned
from trainonce.surgery.settings import refusal_of_settings
from trainonce.surgery.sharding import refusal_of_shards
from trainonce.surgery.slicing import apply_plan, plans_of, silence
from trainonce.tracing.trace import trace


def inspect(
    model: nn.Module, example: Example, *, protect: Sequence[str] = (), streams: bool = False
) -> Partition:
    """All channels of a model in groups: which can be cut, which must stay and why, and what each costs.

    The model runs on the example as it is, and is left as it was.

    Example: `print(trainonce.inspect(model, torch.randn(1, 3, 224, 224)))`.

    Args:
        model: Any `nn.Module`; it is not copied, exported or wrapped.
        example: What the model is called with: one tensor, a tuple of positional inputs, or a dict of keyword
            inputs. A batch of one is enough.
        protect: Modules that must not lose channels, as patterns on their names: `["head*", "layer4.*"]`.
        streams: Whether the channels under a LayerNorm may go: the width of BERT, of a ViT. The norm then
            keeps dividing by the number it had, which the small model computes with `torch.fx`.

    Returns:
        The groups as plain data: print it, pickle it, or make a `trainonce.Plan` from it.

    Raises:
        ModelError: The model does not run on the example or has no parameters, or a pattern in `protect`
            matches nothing.
    """
    _check_arguments(model, example, protect, streams)
    with modes_kept(model):
        traced = trace(model, example, protect=protect, streams=streams)
        model.eval()
        return proof.prove(model, traced)


def cut(
    model: nn.Module,
    plan: Plan,
    *,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> nn.Module:
    """Remove what a plan drops from a model, in place: weights, gradients and optimizer state.

    The cut is verified on the plan's example: outputs must equal those of the model with the dropped channels
    silenced, and gradients must flow. If not, the model is left unchanged.

    Example: `trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5), optimizer=optimizer)`.

    Args:
        model: The model that the plan was made for. Its modules and parameters stay the same objects.
        plan: Which channels stay, such as `trainonce.Plan.from_masks(partition, masks)`.
        optimizer: The one that trains the model, or a list of them; their state is cut as well.

    Returns:
        The model.

    Raises:
        PlanError: The plan was made for another model, or the cut can't be verified; the model is unchanged.
    """
    if isinstance(plan, Plan):
        plan = replace(plan, norms=folded(plan.norms))
    return _cut(model, plan, optimizer)


def shrink(
    model: nn.Module,
    plan: Plan,
    *,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> nn.Module:
    """As `cut`, for a model that goes on training, which then takes the same steps as without the cut.

    Weights of norms that must be scaled are scaled whenever the norm runs; see `surgery.norms`.
    """
    if isinstance(plan, Plan):
        # While it is trained the model isn't yet what its configuration would build.
        plan = replace(plan, norms=unfolded(plan.norms), settings=())
    return _cut(model, plan, optimizer)


def _cut(
    model: nn.Module,
    plan: Plan,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
) -> nn.Module:
    if isinstance(model, nn.Module) and isinstance(plan, Plan) and _was_cut_by(model, plan):
        raise PlanError(
            "this plan has already been applied to this model: a pruner cuts the "
            "followers of its model itself. Remove this call."
        )
    check_fits(model, plan)
    optimizers = check_owned(optimizer, model)
    restore = snapshot(model, optimizers)
    try:
        with modes_kept(model):
            model.eval()
            if plan.example is None:
                apply_plan(model, plan, optimizers=optimizers)
            else:
                _cut_and_prove(model, plan, plan.example, optimizers, restore)
    except BaseException as error:
        restore()
        if not isinstance(error, Exception) or isinstance(error, PlanError):
            raise
        way_out = "The model is unchanged; inspect it again with protect=[...] for that layer."
        raise PlanError(f"the cut model does not run ({reason_of(error, longest=300)}). {way_out}") from error
    return model


def _was_cut_by(model: nn.Module, plan: Plan) -> bool:
    bare = replace(plan, norms=())
    return bool(plan.cuts) and any(replace(known, norms=()) == bare for known in plans_of(model))


def _cut_and_prove(
    model: nn.Module,
    plan: Plan,
    example: Example,
    optimizers: Sequence[torch.optim.Optimizer],
    restore: Callable[[], None],
) -> None:
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    refusal = proof.backward_refusal(model, example)
    for name in {axis_cut.tensor for axis_cut in plan.cuts if axis_cut.silenced}:
        # A copy: the caller puts the data back if the proof fails.
        tensors[name].data = tensors[name].data.clone()
    silence(model, plan)
    before = proof.outputs_of(model, example)
    if not can_be_compared(before):
        raise PlanError(
            "the model's output on the example is NaN, so no cut can be proven. The model is unchanged; "
            "check its weights, its buffers and the example for NaN and infinity."
        )
    apply_plan(model, plan, optimizers=optimizers)
    difference = relative_difference(before, proof.outputs_of(model, example))
    dtype = next((tensor.dtype for tensor in before if tensor.is_floating_point()), torch.float32)
    if difference > proof.TOLERANCE.get(dtype, 5e-2):
        # Scores that rounding makes equal may be sorted either way: only float64 can tell.
        restore()
        if dtype is torch.float64 or not proof.agrees_in_double(model, plan, example):
            raise PlanError(
                f"the cut model differs from the silenced one by {difference:.1e} of the output's scale. The "
                "model is unchanged; inspect it again."
            )
        apply_plan(model, plan, optimizers=optimizers)
    if plan.settings and (words := refusal_of_settings(model, example)) is not None:
        raise PlanError(
            f"the small model can't be built from its configuration ({words}). The model is unchanged; make "
            "the plan without uniform."
        )
    if refusal is None and (refusal := proof.backward_refusal(model, example)):
        raise PlanError(
            f"no gradient flows through the cut model ({refusal}). The model is unchanged; inspect it again."
        )


def _check_arguments(model: Any, example: Any, protect: Any, streams: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ModelError(f"inspect needs an nn.Module, got {type(model).__name__}. Build the model first.")
    if (words := refusal_of_shards(model)) is not None:
        raise ModelError(words)
    if next(model.parameters(), None) is None:
        raise ModelError(
            f"{type(model).__name__} has no parameters, so there is nothing to cut. Pass a model with layers."
        )
    if not isinstance(example, Tensor | tuple | dict):
        raise ModelError(
            f"inspect needs an example to run the model on, got {type(example).__name__}. "
            f"Pass a tensor, a tuple of inputs, or a dict of keyword inputs."
        )
    if (
        isinstance(protect, str)
        or not isinstance(protect, Sequence)
        or not all(isinstance(pattern, str) for pattern in protect)
    ):
        raise ModelError(
            f"protect must be a list of patterns, got {shorten(protect)}. For example: protect=['head*']."
        )
    if not isinstance(streams, bool):
        raise ModelError(f"streams must be True or False, got {shorten(streams)}.")
