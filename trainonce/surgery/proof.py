"""Whether a cut model computes the same as the whole one with those channels silenced: run both, compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainonce.execution.comparison import relative_difference
from trainonce.execution.forward import copied, output_tensors, run_model
from trainonce.execution.precision import InDouble
from trainonce.execution.restoring import buffers_kept, gradients_aside
from trainonce.messages.plain_text import reason_of
from trainonce.structure.channels import Example
from trainonce.structure.partition import Partition
from trainonce.structure.plan import Plan
from trainonce.surgery.scratch import own_weights, scratch_weights
from trainonce.surgery.slicing import apply_plan, silence
from trainonce.tracing.contradictions import random_masks
from trainonce.tracing.trace import Trace

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 5e-2}
"""Largest difference, relative to the output's scale, that rounding explains in a deep model."""

CLOSE = 5e-6
"""A difference in float32 that no wrong cut of redrawn weights gives by chance."""

MANY_MACS = 100_000_000
"""Above this, float64 would take most of an inspection: it decides only where float32 is not close."""

LARGE_MACS = 10_000_000_000
"""Above this, float64 on a CPU takes too long: it decides only where rounding can't explain float32."""


def outputs_of(model: nn.Module, example: Example) -> list[Tensor]:
    """The model's output tensors on the example, without gradients, from a fixed random state."""
    is_double = any(parameter.dtype is torch.float64 for parameter in model.parameters())
    with torch.no_grad(), torch.random.fork_rng(devices=[]), InDouble() if is_double else nullcontext():
        torch.manual_seed(0)
        return [tensor.detach() for tensor in output_tensors(run_model(model, copied(example)))]


def backward_refusal(model: nn.Module, example: Example) -> str | None:
    """Why no gradient can be computed on the example; None if one can.

    Gradients and buffers are left as they were.
    """
    try:
        with (
            gradients_aside(model.parameters()),
            buffers_kept(model),
            torch.enable_grad(),
            torch.random.fork_rng(devices=[]),
        ):
            outputs = [
                tensor
                for tensor in output_tensors(run_model(model, copied(example)))
                if tensor.requires_grad and tensor.is_floating_point()
            ]
            if outputs:
                # Not `backward`: that would fire hooks on accumulated gradients (optimizers that step there)
                # and fill the example's.
                learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
                torch.autograd.grad([tensor.sum() for tensor in outputs], learned, allow_unused=True)
    except Exception as error:
        return reason_of(error, longest=300)
    return None


def cast(example: Example, dtype: torch.dtype | None) -> Example:
    """The example with its floating tensors in `dtype`."""
    if dtype is None:
        return example
    return tree_map_only(
        Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, example
    )


def _proving_dtypes(model: nn.Module) -> list[torch.dtype | None]:
    """Precisions to prove in, best first: float64, then the model's own (None)."""
    return [None] if any(parameter.is_meta for parameter in model.parameters()) else [torch.float64, None]


def quick_tolerance(dtype: torch.dtype, macs: int) -> float:
    """The largest difference in the model's own precision that needs no second opinion.

    Negative where that precision is not tried.
    """
    if dtype is not torch.float32 or macs <= MANY_MACS:
        return -1.0
    return CLOSE if macs <= LARGE_MACS else TOLERANCE[dtype]


def difference_on_scratch(model: nn.Module, plan: Plan, example: Example, dtype: torch.dtype | None) -> float:
    """How far cutting by `plan` moves the output, on redrawn weights; the model is left as it was."""
    with scratch_weights(model, dtype):
        return _difference(model, plan, cast(example, dtype))


def agrees_in_double(model: nn.Module, plan: Plan, example: Example) -> bool:
    """Whether the cut by `plan` is exact in float64 on the model's own weights.

    The model is left as it was.
    """
    try:
        with own_weights(model, torch.float64):
            return _difference(model, plan, cast(example, torch.float64)) <= TOLERANCE[torch.float64]
    except Exception:
        # A model that runs in its own precision only has no second opinion.
        return False


def _difference(model: nn.Module, plan: Plan, example: Example) -> float:
    silence(model, plan)
    before = outputs_of(model, example)
    apply_plan(model, plan)
    return relative_difference(before, outputs_of(model, example))


def failing(groups: list[str], complaint: Callable[[list[str]], str | None]) -> dict[str, str]:
    """The members of `groups` that can't be cut, with the complaint about each, found by halving."""
    words = complaint(groups) if groups else None
    if words is None:
        return {}
    if len(groups) == 1:
        return {groups[0]: words}
    middle = len(groups) // 2
    found = failing(groups[:middle], complaint) | failing(groups[middle:], complaint)
    # Harmless apart but not together: give up the whole set rather than guess.
    return found or dict.fromkeys(groups, words)


def prove(model: nn.Module, traced: Trace) -> Partition:
    """The partition of a traced model in eval mode, proven on scratch weights.

    Groups whose cut moves the output are kept, with that reason.
    """
    partition = traced.partition()
    while partition.prunable_groups and (failed := _unproven(model, partition)):
        partition = traced.partition_keeping(partition, failed)
    return partition


def _unproven(model: nn.Module, partition: Partition) -> dict[str, str]:
    """The groups that fail the proof in the best precision that the model runs in, with the reason."""
    masks = random_masks(partition.groups, seed=4)

    def complaint(names: list[str], dtype: torch.dtype | None, tolerance: float) -> str | None:
        try:
            plan = Plan.from_masks(partition, {name: masks[name] for name in names})
            difference = difference_on_scratch(model, plan, partition.example, dtype)
        except Exception as error:
            return f"the proof failed, the cut model does not run ({reason_of(error, longest=300)})"
        return (
            None
            if difference <= tolerance
            else f"the proof failed, cutting it moves the output by {difference:.1e} of its scale"
        )

    own = _precision(model)
    quick = quick_tolerance(own, partition.macs)
    if quick > 0 and complaint(list(masks), None, quick) is None:
        return {}
    idle = None
    for dtype in _proving_dtypes(model):
        in_precision = partial(complaint, dtype=dtype, tolerance=TOLERANCE.get(dtype or own, 5e-2))
        if in_precision(list(masks)) is None:
            return {}
        # A model that fails with nothing cut says nothing about any group: try its own precision.
        idle = in_precision([])
        if idle is None:
            return failing(list(masks), in_precision)
    return dict.fromkeys(masks, idle or "the proof could not run")


def _precision(model: nn.Module) -> torch.dtype:
    return next(
        (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), torch.float32
    )
