"""Finds averaged copies of a model (EMA, SWA), which don't follow when the model is cut."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import TypeVar
from weakref import ref

import torch
from torch import nn

Kind = TypeVar("Kind")

AVERAGES = re.compile(r"E[Mm][Aa](?![a-z])|Averag")
"""Matches class names: torch's AveragedModel, timm's ModelEma to ModelEmaV3, and most others."""

_FOLLOWERS: dict[int, ref[nn.Module]] = {}


def follows_by_itself(copy: nn.Module) -> None:
    """Note that this copy is cut whenever the model is, so there is nothing to warn about."""
    number = id(copy)
    _FOLLOWERS[number] = ref(copy, lambda _: _FOLLOWERS.pop(number, None))


class Copies:
    """Looks for averaged copies of a model among all living objects.

    A copy inside an averaging wrapper certainly is one. Any other copy, such as a `deepcopy` that a
    hand-written loop updates, is one if its weights change and no optimizer has them. That rules out
    teachers, baselines and second models in training.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._seen: dict[int, tuple[ref[nn.Module], str]] = {}

    def complaint(self) -> str | None:
        """A warning about the first averaged copy; None if none is known so far."""
        found = self._complaint()
        if found is not None:
            # It may be from an earlier run and only not collected yet.
            gc.collect()
            found = self._complaint()
        return found

    def _complaint(self) -> str | None:
        copies, wrappers = self._find()
        for wrapper in wrappers:
            for path, module in wrapper.named_modules():
                if any(module is copy for copy in copies):
                    return _words(type(wrapper).__name__, f"average.{path}")
        moving = [copy for copy in copies if self._has_changed(copy)]
        trained = _trained() if moving else set()
        for copy in moving:
            if trained.isdisjoint(id(parameter) for parameter in copy.parameters()):
                return _words(
                    f"a second {type(copy).__name__} whose weights change without an optimizer", "average"
                )
        return None

    def _has_changed(self, copy: nn.Module) -> bool:
        """Whether a copy's weights are different from when it was first seen."""
        # As text, because NaN equals NaN there.
        sums = str([float(parameter.detach().double().sum()) for parameter in copy.parameters()])
        seen, before = self._seen.get(id(copy), (None, sums))
        if seen is None or seen() is not copy:
            self._seen[id(copy)] = ref(copy), sums
            return False
        return sums != before

    def _find(self) -> tuple[list[nn.Module], list[nn.Module]]:
        """Copies that don't follow by themselves, and all modules with the name of an average."""
        own = {id(module) for module in self._model.modules()}
        shapes = _shapes(self._model)
        copies, wrappers = [], []
        for module in _living(nn.Module):
            if id(module) in own or id(module) in _FOLLOWERS or "_parameters" not in vars(module):
                continue
            if AVERAGES.search(type(module).__name__):
                wrappers.append(module)
            if (
                type(module) is type(self._model)
                and _shapes(module) == shapes
                and _is_apart(module, self._model)
            ):
                copies.append(module)
        return copies, wrappers


def _words(what: str, path: str) -> str:
    return (
        f"an averaged copy of this model ({what}) will not follow when the model is cut, and its shapes will "
        f"no longer match. Cut it, too, whenever pruner.step() returns True: trainonce.cut({path}, "
        "pruner.cuts[-1])."
    )


def _living(kind: type[Kind]) -> Iterator[Kind]:
    """All objects of a class.

    By type(): isinstance would make a lazy proxy load what it stands for.
    """
    return (thing for thing in gc.get_objects() if issubclass(type(thing), kind))


def _trained() -> set[int]:
    """The ids of all parameters in any optimizer."""
    groups = [
        group
        for optimizer in _living(torch.optim.Optimizer)
        for group in vars(optimizer).get("param_groups", [])
    ]
    return {id(parameter) for group in groups for parameter in group["params"]}


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _is_apart(copy: nn.Module, model: nn.Module) -> bool:
    """Whether a module shares no parameter with the model, and has real weights."""
    own = {id(parameter) for parameter in model.parameters()}
    return not any(id(parameter) in own or parameter.is_meta for parameter in copy.parameters())
