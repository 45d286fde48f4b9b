"""Checks that every attribute a saved plan changes is a size, and that its new value follows from the cut.

A plan may set integer attributes of modules. In an untrusted file that could be any integer of any module: a
stride, a port. So each change must follow from the cut: for torch's own layers from the shapes of their
weights, for all others from tracing this very model, which tells what each size becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainonce.errors import ModelError, ModelMismatchError
from trainonce.execution.outline import OutlineError, stand_in
from trainonce.execution.restoring import modes_kept
from trainonce.messages.plain_text import quoted, shown
from trainonce.storage.artifact.rationing import Ration, TooLargeError
from trainonce.structure.channels import AttributeChange
from trainonce.structure.plan import Plan
from trainonce.structure.succession import joined
from trainonce.structure.swaps import cuts_streams
from trainonce.surgery.remembered_sizes import SIZES
from trainonce.tracing.partition import settle
from trainonce.tracing.sizes.checks import Assignment
from trainonce.tracing.sizes.rules import SizeRules
from trainonce.tracing.sizes.solver import solve
from trainonce.tracing.sizes.survivors import Replays, Survivors
from trainonce.tracing.state.expressions import Attribute
from trainonce.tracing.state.recording import Recording
from trainonce.tracing.trace import record_evaluation, record_training


def confirm_sizes(model: nn.Module, plans: Sequence[Plan], example: Any = None) -> None:
    """Raise ModelMismatchError unless all attribute changes in the plans follow from their cuts.

    The plans are those still to be applied, in order. The model is unchanged.
    """
    modules = dict(model.named_modules())
    wholes = [reduce(joined, plans[: count + 1]) for count in range(len(plans))]
    own = [
        [change for change in whole.attributes if not _follows_from_weights(modules, change, whole)]
        for whole in wholes
    ]
    if not any(own):
        return
    name = _name_of(next(change for changes in own for change in changes))
    refusal = None
    try:
        with modes_kept(model), Ration() if example is None else nullcontext():
            inputs = placed(model, stand_in(plans[0].outline) if example is None else example)
            for recording in _recordings(model, inputs, streams=cuts_streams(plans)):
                refusal = _find_unconfirmed(own, _solved(recording, wholes))
                if refusal is None:
                    return
    except (OutlineError, ModelError, TooLargeError) as error:
        raise ModelMismatchError(
            f"the plan changes {name}, which can only be verified by running the model ({shown(error)}). "
            f"Pass an input as load(..., example=...), or save the model again."
        ) from None
    raise ModelMismatchError(
        f"the plan sets {refusal}, which doesn't follow from its cuts in this model. "
        f"The folder was made for another model, or was tampered with."
    )


def _recordings(model: nn.Module, example: Any, *, streams: bool) -> Iterator[Recording]:
    """What a trace in eval mode shows, then what one in train mode adds; most sizes are read in both."""
    recording, needs_values = record_evaluation(model, example, streams=streams)
    yield recording
    record_training(model, example, recording, needs_values=needs_values)
    yield recording


def _solved(recording: Recording, wholes: Sequence[Plan]) -> list[Assignment]:
    """For each plan, the new value of every size that must change."""
    settle(recording)
    checks, replays = SizeRules.of(recording).checks(), Replays()
    roots = recording.book.roots(torch.arange(recording.book.num_labels))
    return [solve(checks, Survivors(_alive(recording, roots, plan)[roots], replays))[0] for plan in wholes]


def _find_unconfirmed(own: Sequence[Sequence[AttributeChange]], solved: Sequence[Assignment]) -> str | None:
    for changes, found in zip(own, solved, strict=True):
        for change in changes:
            if found.get(Attribute(change.module, change.name, change.index)) != change.after:
                return f"{_name_of(change)} from {change.before} to {quoted(change.after)}"
    return None


def _alive(recording: Recording, roots: Tensor, plan: Plan) -> Tensor:
    """For every label whether the plan keeps it; a final True stands for unlabeled positions."""
    alive = torch.ones(len(roots) + 1, dtype=torch.bool)
    for cut in plan.cuts:
        labels = recording.slots.get((cut.tensor, cut.axis))
        if labels is not None:
            gone = torch.ones(len(labels), dtype=torch.bool)
            gone[list(cut.kept)] = False
            alive[roots[labels[gone]]] = False
    return alive


def placed(model: nn.Module, example: Any) -> Any:
    """The example on the model's device and in its dtype: a converted model takes no other."""
    parameter = next((found for found in model.parameters() if found.is_floating_point()), torch.empty(0))

    def move(item: Tensor) -> Tensor:
        return item.to(parameter.device, parameter.dtype if item.is_floating_point() else item.dtype)

    return tree_map_only(Tensor, move, example)


def _follows_from_weights(modules: Mapping[str, nn.Module], change: AttributeChange, plan: Plan) -> bool:
    """Whether a torch layer has this size from its weights, and the cut gives the planned value."""
    module = modules.get(change.module)
    if module is None or change.index is not None:
        return False
    if any(isinstance(module, kind) and change.name in dict(sizes) for kind, sizes in SIZES.items()):
        # The cut sets these from the weights, whatever the plan says.
        return True
    for kind, rules in _RULES.items():
        if isinstance(module, kind) and change.name in rules:
            return rules[change.name](_Cuts(change.module, plan), change.before) == change.after
    return False


class _Cuts:
    """What a plan does to the tensors of one module."""

    def __init__(self, module: str, plan: Plan) -> None:
        self._prefix = f"{module}." if module else ""
        self._plan = plan

    def size(self, tensor: str, axis: int) -> int | None:
        """The size of an axis after the cut."""
        kept = self._kept(tensor, axis)
        return None if kept is None else len(kept)

    def blocks(self, tensor: str, count: int) -> int | None:
        """How many of `count` equal blocks of the first axis are left, if all keep the same number."""
        shape, kept = self._plan.shapes.get(self._prefix + tensor), self._kept(tensor, 0)
        if shape is None or kept is None or count < 1 or shape[0] % count:
            return None
        length = shape[0] // count
        left: dict[int, int] = {}
        for position in kept:
            left[position // length] = left.get(position // length, 0) + 1
        return len(left) if len(set(left.values())) == 1 else None

    def _kept(self, tensor: str, axis: int) -> Sequence[int] | None:
        name = self._prefix + tensor
        shape = self._plan.shapes.get(name)
        if shape is None or axis >= len(shape):
            return None
        return next(
            (cut.kept for cut in self._plan.cuts if (cut.tensor, cut.axis) == (name, axis)),
            range(shape[axis]),
        )


_RULES: Mapping[type[nn.Module], Mapping[str, Callable[[_Cuts, int], int | None]]] = {
    nn.modules.conv._ConvNd: {"groups": lambda cuts, before: cuts.blocks("weight", before)},
    nn.GroupNorm: {"num_groups": lambda cuts, before: cuts.blocks("weight", before)},
    nn.RNNBase: {
        "hidden_size": lambda cuts, before: cuts.size("weight_hh_l0", 1),
        "input_size": lambda cuts, before: cuts.size("weight_ih_l0", 1),
    },
    nn.RNNCellBase: {
        "hidden_size": lambda cuts, before: cuts.size("weight_hh", 1),
        "input_size": lambda cuts, before: cuts.size("weight_ih", 1),
    },
}
"""Other sizes that torch layers store and that follow from their weights."""


def _name_of(change: AttributeChange) -> str:
    where = f"{change.module}.{change.name}" if change.module else change.name
    return shown(where if change.index is None else f"{where}[{change.index}]")
