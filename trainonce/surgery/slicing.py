"""Take channels out of a model, in place: every parameter, module and reference stays the same object.

`silence` zeroes what a plan drops; `apply_plan` removes it from parameters, buffers, gradients and optimizer
state, and updates the sizes that modules remember.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import nn

from trainonce.errors import PlanError
from trainonce.execution.restoring import drop_caches, replace_data
from trainonce.structure.plan import Plan
from trainonce.surgery.fitting import check_fits
from trainonce.surgery.narrowing import narrow_state, narrowed
from trainonce.surgery.norms import scale_norms
from trainonce.surgery.optimizer_state import foreign_state
from trainonce.surgery.remembered_sizes import mend_sizes, set_attribute
from trainonce.surgery.settings import change_settings
from trainonce.surgery.swaps import swap_modules

PLANS = "_trainonce_plans"
"""The attribute under which a cut model carries the plans that made it, so that it can be saved.

As text: a pickle of the model then opens where trainonce is not installed.
"""


def silence(model: nn.Module, plan: Plan) -> nn.Module:
    """Zero what the plan drops, in place; cutting it afterwards changes no output.

    Args:
        model: The model that the plan was made for.
        plan: Which channels stay, such as `trainonce.Plan.from_masks(partition, masks)`.

    Returns:
        The model.
    """
    tensors = check_fits(model, plan)
    with torch.no_grad():
        for cut in plan.cuts:
            if cut.silenced:
                tensor = tensors[cut.tensor]
                dropped = torch.ones(tensor.shape[cut.axis], dtype=torch.bool)
                dropped[list(cut.kept)] = False
                tensor.index_fill_(cut.axis, dropped.nonzero().flatten().to(tensor.device), 0)
    drop_caches(model)
    return model


def apply_plan(model: nn.Module, plan: Plan, *, optimizers: Sequence[torch.optim.Optimizer] = ()) -> None:
    """Remove what the plan drops, without a proof.

    The model is unchanged if the plan doesn't fit.
    """
    tensors = check_fits(model, plan)
    axes: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for cut in plan.cuts:
        axes.setdefault(cut.tensor, []).append((cut.axis, cut.kept))
    states = [optimizer.state for optimizer in optimizers]
    for optimizer in optimizers:
        if foreign := foreign_state(optimizer, of=[tensors[name] for name in axes]):
            raise PlanError(f"{foreign} Or drop it, with optimizer.state.clear().")
    for name, cuts in axes.items():
        tensor = tensors[name]
        for state in states:
            if tensor in state:
                narrow_state(state[tensor], tensor.shape, cuts)
        grad = None if tensor.grad is None else narrowed(tensor.grad, cuts)
        replace_data(tensor, narrowed(tensor.data, cuts), grad)
    modules = dict(model.named_modules())
    scale_norms(model, plan)
    for change in plan.attributes:
        set_attribute(modules[change.module], change.name, change.index, change.after)
    for module in modules.values():
        mend_sizes(module)
    swap_modules(model, plan)
    change_settings(model, plan.settings)
    drop_caches(model)
    model.__dict__[PLANS] = (*model.__dict__.get(PLANS, ()), plan.to_json())


def plans_of(model: nn.Module) -> tuple[Plan, ...]:
    """The plans that were applied to a model, oldest first."""
    found = model.__dict__.get(PLANS, ())
    # Pickles of earlier versions hold the plans themselves.
    return tuple(plan if isinstance(plan, Plan) else _read(plan) for plan in found)


@lru_cache(maxsize=64)
def _read(text: str) -> Plan:
    return Plan.from_json(text)
