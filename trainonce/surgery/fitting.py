"""Whether a plan fits a model: the same tensors, of the same shapes, with the same remembered sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from trainonce.errors import PlanError
from trainonce.messages.plain_text import quoted, shown
from trainonce.structure.plan import Plan
from trainonce.surgery.remembered_sizes import get_attribute
from trainonce.surgery.settings import check_settings
from trainonce.surgery.swaps import check_swaps
from trainonce.tracing.norms import find_norms


def check_fits(model: nn.Module, plan: Plan) -> dict[str, Tensor]:
    """The model's parameters and buffers by name; PlanError if the plan was made for other shapes.

    Buffers that no cut touches may change, come and go: models cache there what depends on the last input's
    size.
    """
    if not isinstance(model, nn.Module) or not isinstance(plan, Plan):
        raise PlanError(
            f"expected a model and a plan, got {type(model).__name__} and {type(plan).__name__}. Make a plan "
            "with trainonce.Plan."
        )
    tensors: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    free = _buffer_names(model) - {cut.tensor for cut in plan.cuts}
    way_out = (
        "Build the model with the settings the plan was made with, or make a new plan with trainonce.inspect."
    )
    for name, shape in plan.shapes.items():
        if name in free:
            continue
        if name not in tensors:
            raise PlanError(
                f"the plan was made for {shown(plan.model)}, which has a tensor {shown(name)}; "
                f"this {type(model).__name__} has none. {way_out}"
            )
        if tuple(tensors[name].shape) != shape:
            raise PlanError(
                f"the plan was made for {shown(plan.model)} with {shown(name)} of shape {quoted(shape)}, "
                f"this one has {tuple(tensors[name].shape)}. {way_out}"
            )
    if extra := set(tensors) - set(plan.shapes) - free:
        raise PlanError(
            f"the plan was made for {shown(plan.model)}, which has no tensor {min(extra)}; this "
            f"{type(model).__name__} has one. {way_out}"
        )
    _check_cuts(model, plan)
    return tensors


def _buffer_names(model: nn.Module) -> set[str]:
    """Including those that are None now; a scripted module tells its names in no other way."""
    return {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name, _ in module._buffers.items()
    }


def _check_norms(modules: Mapping[str, nn.Module], plan: Plan) -> None:
    """What a plan scales is a norm of the model, found again by trying: it could say anything."""
    cut = {(cut.tensor, cut.axis) for cut in plan.cuts}
    for norm in plan.norms:
        own = find_norms(modules[norm.module]).get("") if norm.module in modules else None
        name = f"{norm.module}.{own.tensor}".lstrip(".") if own is not None else ""
        if own is None or replace(own, module=norm.module, tensor=name, is_folded=norm.is_folded) != norm:
            raise PlanError(
                f"the plan scales {shown(norm.module or 'the model')}, which is no such norm in this model. "
                "Make a new plan with trainonce.inspect."
            )
        if (norm.tensor, norm.axis) not in cut:
            raise PlanError(f"the plan scales {shown(norm.module)} without cutting it. Save the model again.")


def _check_cuts(model: nn.Module, plan: Plan) -> None:
    if len({(cut.tensor, cut.axis) for cut in plan.cuts}) < len(plan.cuts):
        raise PlanError("the plan cuts one axis twice. Save the model again.")
    for cut in plan.cuts:
        shape = plan.shapes.get(cut.tensor)
        if shape is None or cut.axis >= len(shape):
            raise PlanError(
                f"the plan cuts axis {quoted(cut.axis)} of {shown(cut.tensor)}, which doesn't exist. Save "
                "the model again."
            )
        if not cut.kept or cut.kept[-1] >= shape[cut.axis] or sorted(set(cut.kept)) != list(cut.kept):
            raise PlanError(
                f"the plan keeps positions of axis {quoted(cut.axis)} of {shown(cut.tensor)} that it doesn't "
                "have. Save the model again."
            )
    modules = dict(model.named_modules())
    _check_norms(modules, plan)
    check_swaps(modules, plan)
    check_settings(model, plan.settings)
    for change in plan.attributes:
        found = get_attribute(modules.get(change.module), change.name, change.index)
        if found != change.before:
            raise PlanError(
                f"the plan expects {shown(change.module or 'the model')}.{shown(change.name)} to be "
                f"{quoted(change.before)}, it is {found}. "
                f"Build the model with the settings the plan was made with."
            )
