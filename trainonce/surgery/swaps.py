"""Modules that a plan has cut compute in another way: attention, and LayerNorms that keep their divisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from trainonce.errors import PlanError
from trainonce.execution.attention import are_heads_free, bind_heads, free_heads
from trainonce.execution.straight_code import take_forward_back
from trainonce.execution.wide_norm import keep_divisor, kept_divisor
from trainonce.messages.plain_text import shown
from trainonce.structure.plan import Plan
from trainonce.structure.swaps import ATTENTION, Swap
from trainonce.tracing.swaps import find_swaps


def swap_modules(model: nn.Module, plan: Plan) -> None:
    """Let the modules that a plan has cut compute as they must; their tensors have been cut already."""
    modules: dict[str, Any] = dict(model.named_modules())
    for swap in plan.swaps:
        module = modules[swap.module]
        if swap.kind == ATTENTION:
            if not are_heads_free(module):
                free_heads(module)
        elif kept_divisor(module) is None:
            divisor = _num_before(plan, swap)
            keep_divisor(module, divisor, swap.axis)
            # Whoever computes it past `forward` gets an error, not another divisor.
            module.normalized_shape = (divisor,)


def swap_back(model: nn.Module, plan: Plan) -> None:
    """Undo `swap_modules` where the tensors have all the channels again that the module was made with."""
    modules: dict[str, Any] = dict(model.named_modules())
    for swap in plan.swaps:
        module = modules[swap.module]
        if swap.kind == ATTENTION:
            if _is_as_made(module):
                bind_heads(module)
        elif kept_divisor(module) == _num_before(plan, swap):
            take_forward_back(module)


def check_swaps(modules: Mapping[str, nn.Module], plan: Plan) -> None:
    """What a plan swaps is such a module of this model: the plan could say anything."""
    for swap in plan.swaps:
        own = find_swaps(modules[swap.module]).get("") if swap.module in modules else None
        if own is None or replace(own, module=swap.module, tensors=swap.tensors) != swap:
            raise PlanError(
                f"the plan changes how {shown(swap.module or 'the model')} computes, which is no such "
                "module in this model. Make a new plan with trainonce.inspect."
            )
        if not swap.tensors or not plan.shapes.keys() >= set(swap.tensors):
            raise PlanError(
                f"the plan changes {shown(swap.module)} for tensors that don't exist. Save the model again."
            )


def _num_before(plan: Plan, swap: Swap) -> int:
    """The number of channels that a LayerNorm had before the plan."""
    return plan.shapes[swap.tensors[0]][0]


def _is_as_made(module: Any) -> bool:
    """Whether the heads of attention make up its width, as torch's code demands."""
    width = module.num_heads * module.head_dim
    query = module.in_proj_weight if module.in_proj_weight is not None else module.q_proj_weight
    return width == module.out_proj.weight.shape[0] == query.shape[1]
