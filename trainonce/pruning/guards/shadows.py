"""Averages of a model that are no modules but bare tensors: a list like its parameters, or a dict by name.

Many EMA classes keep them so (`shadow_params`). They are cut in place: each tensor stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from trainonce.execution.restoring import replace_data
from trainonce.structure.plan import Plan
from trainonce.surgery.narrowing import narrowed


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """One tensor of an average."""

    tensor: Tensor
    parameter: str
    """The parameter or buffer that it is the average of, by the name that plans have for it."""

    def cut(self, plans: Iterable[Plan]) -> None:
        """Keep the entries that these plans keep."""
        for plan in plans:
            for cut in plan.cuts:
                if cut.tensor == self.parameter:
                    replace_data(self.tensor, narrowed(self.tensor.data, [(cut.axis, cut.kept)]), None)


def shadows_in(holder: object, model: nn.Module) -> list[Shadow]:
    """The bare averages of a model in a list, a dict, or the attributes of any other object."""
    places = (
        [holder]
        if isinstance(holder, list | tuple | dict)
        else list(getattr(holder, "__dict__", {}).values())
    )
    # Plans have the first of several names.
    first: dict[int, str] = {}
    for name, tensor in _tensors_of(model).items():
        first.setdefault(id(tensor), name)
    own, found = _tensors_of(model), dict[int, Shadow]()
    for place in places:
        for name, tensor in _by_name(place, model).items():
            # The same list may be in two attributes.
            found.setdefault(id(tensor), Shadow(tensor, first[id(own[name])]))
    return list(found.values())


def _by_name(place: object, model: nn.Module) -> dict[str, Tensor]:
    """The tensors in a list or dict by the names of the parameters that they are like; none if it is not."""
    own = _tensors_of(model)
    parameters = dict(model.named_parameters())
    trained = {name: part for name, part in parameters.items() if part.requires_grad}
    rows: list[dict[str, object]] = []
    if isinstance(place, dict):
        # DistributedDataParallel puts a word before each name.
        row = {str(name).removeprefix("module."): part for name, part in place.items()}
        rows = [row] if trained.keys() <= row.keys() else []
    elif isinstance(place, list | tuple):
        rows = [
            dict(zip(names, place, strict=True))
            for names in (parameters, trained, model.state_dict())
            if len(names) == len(place)
        ]
    storages = {tensor.untyped_storage().data_ptr() for tensor in own.values()}
    for row in rows:
        tensors = {name: part for name, part in row.items() if isinstance(part, Tensor)}
        if tensors and len(tensors) == len(row) and _is_copy(tensors, own, storages):
            return tensors
    return {}


def _tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers; those that are tied have several names."""
    own: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    return own | dict(model.named_buffers(remove_duplicate=False))


def _is_copy(tensors: dict[str, Tensor], own: dict[str, Tensor], storages: set[int]) -> bool:
    """Whether tensors have the shapes of the model's own, and a memory that is not the model's."""
    return all(
        name in own
        and part.shape == own[name].shape
        and not (part.numel() and part.untyped_storage().data_ptr() in storages)
        for name, part in tensors.items()
    )
