"""Models that `restore` has cut to the size they had, until a pruner takes over with the same state."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import reduce
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from trainonce.execution.restoring import replace_data
from trainonce.structure.plan import Plan
from trainonce.structure.succession import joined
from trainonce.surgery.norms import unscale_norms
from trainonce.surgery.remembered_sizes import mend_sizes, set_attribute
from trainonce.surgery.swaps import swap_back

_RESTORED: WeakKeyDictionary[nn.Module, tuple[Plan, ...]] = WeakKeyDictionary()


def note_restored(model: nn.Module, plans: Sequence[Plan]) -> None:
    """Note the plans that a model was restored by; none if a pruner has taken over."""
    if plans:
        _RESTORED[model] = tuple(plans)
    else:
        _RESTORED.pop(model, None)


def restoring_plans(model: nn.Module) -> tuple[Plan, ...]:
    """The plans that a model was restored by, oldest first; none for any other model."""
    return _RESTORED.get(model, ())


def are_same_cuts(some: Sequence[Plan], others: Sequence[Plan]) -> bool:
    """Whether two rows of plans cut the same."""
    return [(plan.cuts, plan.attributes) for plan in some] == [
        (plan.cuts, plan.attributes) for plan in others
    ]


def widened(model: nn.Module, plans: Sequence[Plan]) -> nn.Module:
    """A copy with the shapes and sizes from before the plans; what they had dropped is zero."""
    plan = reduce(joined, plans)
    with torch.no_grad():
        # With gradients, a copied script module gets non-leaf parameters.
        dense = copy.deepcopy(model)
    tensors: dict[str, Tensor] = dict(dense.named_parameters()) | dict(dense.named_buffers())
    for cut in plan.cuts:
        tensor = tensors[cut.tensor]
        shape = list(tensor.shape)
        shape[cut.axis] = plan.shapes[cut.tensor][cut.axis]
        whole = tensor.data.new_zeros(shape)
        whole.index_copy_(cut.axis, torch.tensor(cut.kept, device=whole.device), tensor.data)
        replace_data(tensor, whole, None)
    modules = dict(dense.named_modules())
    for one in plans:
        unscale_norms(dense, one)
    for change in plan.attributes:
        set_attribute(modules[change.module], change.name, change.index, change.before)
    for module in modules.values():
        mend_sizes(module)
    swap_back(dense, plan)
    return dense


def same_parameters(model: nn.Module, names: Iterable[str]) -> dict[str, nn.Parameter]:
    """The parameters of a model by these names."""
    own = dict(model.named_parameters())
    return {name: own[name] for name in names}
