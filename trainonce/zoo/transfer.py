"""Weights of a file put into a model: which fit, which are missing, and which belong to another head.

Everything is checked before the model is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainonce.errors import WeightsError
from trainonce.messages.plain_text import in_one_line, shown_path
from trainonce.zoo.head import NewHead
from trainonce.zoo.weight_files import WeightFile

WRAPPERS = ("module.", "_orig_mod.")
"""What DistributedDataParallel and torch.compile put before every name."""

LEAST_SHARE = 0.5
"""Of the model's parameters outside its head; a file with fewer is of another model."""

_FEW = 4
_COUNTERS = "num_batches_tracked"
"""Batch norms count batches; older files don't, and no result depends on it."""


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """What of a file goes into a model."""

    source: WeightFile
    tensors: Mapping[str, Tensor]
    head: NewHead | None
    missing: tuple[str, ...]
    """Tensors of the model that keep the values they have."""

    unexpected: tuple[str, ...]
    """Tensors of the file that are not used."""

    def __str__(self) -> str:
        """One line: the file, the new head, and names that are missing or left over."""
        place = f" ({self.source.average})" if self.source.average else ""
        parts = [f"{len(self.tensors)} tensors of {shown_path(self.source.path)}{place}"]
        if self.head is not None:
            parts.append(str(self.head))
        parts += [
            f"{what}: {_few(names)}"
            for what, names in (("missing", self.missing), ("unexpected", self.unexpected))
            if names
        ]
        return "; ".join(parts)

    @torch.no_grad()
    def apply(self, model: nn.Module) -> Callable[[], None]:
        """Copy the tensors into the model; returns what takes them out again."""
        own = model.state_dict()
        before = [(own[name], own[name].clone()) for name in self.tensors]
        for name, tensor in self.tensors.items():
            own[name].copy_(tensor)

        def undo() -> None:
            for tensor, value in before:
                tensor.copy_(value)

        return undo


def plan_transfer(source: WeightFile, model: nn.Module) -> Transfer:
    """What of the file goes into the model; WeightsError if it is the file of another model."""
    own = {
        name: tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if isinstance(tensor, Tensor)
    }
    found = _renamed(source, own.keys())
    shared = [name for name in own if name in found]
    others = [name for name in shared if found[name].shape != own[name].shape]
    head = _new_head(source, own, found, others)
    chosen = {name: found[name] for name in shared if name not in others}
    _check_share(source, model, chosen, others)
    for name, tensor in chosen.items():
        _check_values(source, name, tensor, own[name])
    # Tied weights have several names, of which a file may have one.
    reached = {id(own[name]) for name in chosen}
    missing = [
        name
        for name in own
        if name not in found and id(own[name]) not in reached and not name.endswith(_COUNTERS)
    ]
    return Transfer(
        source=source,
        tensors=chosen,
        head=head,
        missing=tuple(missing),
        unexpected=tuple(name for name in found if name not in own),
    )


def _renamed(source: WeightFile, own: Iterable[str]) -> dict[str, Tensor]:
    """The tensors without what wrappers and trainers put before the names of the model.

    WeightsError if several models in the file have these names, such as a teacher and its student.
    """
    known = set(own)
    found = {_unwrapped(name): tensor for name, tensor in source.tensors.items()}
    if known & found.keys():
        return found
    # How many names of the model follow after each beginning; a name in a file may be of any length.
    longest = max(map(len, known), default=0)
    counts = Counter(
        name[:place]
        for name in found
        for place in range(max(1, len(name) - longest), len(name) + 1)
        if name[place - 1] == "." and name[place:] in known
    )
    ((prefix, most), *others) = counts.most_common() or [("", 0)]
    if rivals := [other for other, count in others if count == most]:
        names = ", ".join(in_one_line(name.removesuffix("."), 60) for name in (prefix, *rivals)[:_FEW])
        raise WeightsError(
            f"{shown_path(source.path)} holds several models with the names of this one ({names}). Save the "
            "state dict of one of them, and pass that file."
        )
    return {name.removeprefix(prefix): tensor for name, tensor in found.items()}


def _unwrapped(name: str) -> str:
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name


def _new_head(
    source: WeightFile, own: Mapping[str, Tensor], found: Mapping[str, Tensor], others: list[str]
) -> NewHead | None:
    """The layer whose number of outputs differs.

    Only the last layer can have another number of outputs and leave all other shapes as they are.
    """
    if not others:
        return None
    wrong = [name for name in others if not _differs_in_outputs(found[name], own[name])]
    sizes = {(found[name].shape[0], own[name].shape[0]) for name in others} if not wrong else set()
    if len(sizes) != 1:
        name = [*wrong, *others][0]
        raise WeightsError(
            f"{in_one_line(name, 80)} is {_shape(found[name])} in {shown_path(source.path)} and "
            f"{_shape(own[name])} in the model. Build the model that the weights belong to."
        )
    ((before, after),) = sizes
    names = dict.fromkeys(name.rpartition(".")[0] or name for name in others)
    return NewHead(tuple(names), before, after)


def _check_share(
    source: WeightFile, model: nn.Module, chosen: Mapping[str, Tensor], others: list[str]
) -> None:
    body = {name: tensor for name, tensor in model.named_parameters() if name not in others}
    total = sum(tensor.numel() for tensor in body.values())
    share = sum(tensor.numel() for name, tensor in body.items() if name in chosen)
    if not chosen or share < LEAST_SHARE * total:
        names = ", ".join(in_one_line(name, 60) for name in list(source.tensors)[:2])
        raise WeightsError(
            f"{shown_path(source.path)} holds {100 * share / max(1, total):.0f} % of the parameters of this "
            f"{type(model).__name__}, so it belongs to another model; it begins with {names}, the model with "
            f"{', '.join(list(body)[:2])}."
        )


def _check_values(source: WeightFile, name: str, tensor: Tensor, own: Tensor) -> None:
    kinds = (tensor.is_floating_point(), tensor.is_complex()), (own.is_floating_point(), own.is_complex())
    # Whoever halves a whole state dict halves the counters of batch norms, too.
    if kinds[0] != kinds[1] and not (name.endswith(_COUNTERS) and tensor.is_floating_point()):
        raise WeightsError(
            f"{name} is {tensor.dtype} in {shown_path(source.path)} and {own.dtype} in the model. Pass "
            "weights that are not quantized."
        )
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise WeightsError(f"{name} in {shown_path(source.path)} is not finite. Pass other weights.")


def _differs_in_outputs(one: Tensor, other: Tensor) -> bool:
    return one.dim() == other.dim() > 0 and one.shape[1:] == other.shape[1:]


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"


def _few(names: tuple[str, ...]) -> str:
    listed = ", ".join(in_one_line(name, 60) for name in names[:_FEW])
    return f"{listed} and {len(names) - _FEW} more" if len(names) > _FEW else listed
