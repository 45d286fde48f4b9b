"""The pruners that are attached and alive, found by the model that they prune."""

from __future__ import annotations

from weakref import WeakSet

from torch import nn

from trainonce.pruning.pruner import Pruner

_PRUNERS: WeakSet[Pruner] = WeakSet()


def note_attached(pruner: Pruner) -> None:
    """Make a pruner known."""
    _PRUNERS.add(pruner)


def pruners_of(model: nn.Module) -> list[Pruner]:
    """The attached pruners that share parameters with a model."""
    own = {id(parameter) for parameter in model.parameters()}
    return [
        pruner
        for pruner in _PRUNERS
        if pruner.is_attached and any(id(parameter) in own for parameter in pruner.model.parameters())
    ]
