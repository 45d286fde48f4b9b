"""Finds averaged copies of a model (EMA, SWA) among all living objects, before the model is cut.

A cut changes the model's shapes, so every average of it has to be cut along, or its next update fails.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import nn

from trainonce.pruning.guards.living import imported, kinds_of, living

AVERAGES = re.compile(r"E[Mm][Aa](?![a-z])|Averag")
"""Matches class names of modules that average, whoever wrote them."""

KNOWN = frozenset(
    {
        "torch.optim.swa_utils.AveragedModel",
        "timm.utils.model_ema.ModelEma",
        "timm.utils.model_ema.ModelEmaV2",
        "timm.utils.model_ema.ModelEmaV3",
        "ultralytics.utils.torch_utils.ModelEMA",
        "lightning.pytorch.callbacks.stochastic_weight_avg.StochasticWeightAveraging",
        "pytorch_lightning.callbacks.stochastic_weight_avg.StochasticWeightAveraging",
    }
)
"""Classes that are cut along without being asked; Lightning's WeightAveraging holds an AveragedModel."""

_FOLLOWERS: dict[int, ref[nn.Module]] = {}
_TEACHERS: WeakSet[nn.Module] = WeakSet()

_SEEN: WeakKeyDictionary[nn.Module, WeakKeyDictionary[nn.Module, str]] = WeakKeyDictionary()
"""For each model its copies, with the sums of their weights when they were first seen.

Not forgotten between `restore` and `attach`: an average that is loaded in between has moved.
"""


def follows_by_itself(copy: nn.Module) -> None:
    """Note that somebody else cuts this copy whenever the model is cut."""
    number = id(copy)
    _FOLLOWERS[number] = ref(copy, lambda _: _FOLLOWERS.pop(number, None))


def note_teacher(teacher: nn.Module) -> None:
    """Note that a model and its parts are no averages, whatever their class, unless their weights change.

    Once more when its weights have been loaded: what was seen of it before is forgotten.
    """
    _TEACHERS.update(teacher.modules())
    for seen in _SEEN.values():
        for module in teacher.modules():
            seen.pop(module, None)


def copies_in(holder: object, model: nn.Module) -> list[nn.Module]:
    """The copies of a model in a module, or in the attributes of any other object."""
    if isinstance(holder, nn.Module):
        modules = list(holder.modules())
    else:
        inside = [value for value in _attributes(holder) if isinstance(value, nn.Module)]
        modules = [part for value in inside for part in value.modules()]
    shapes = _shapes(model)
    found = {id(module): module for module in modules if _is_copy(module, model, shapes)}
    return list(found.values())


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What was found around a model that is about to be cut."""

    known: list[object] = field(default_factory=list)
    """Averages of this model, of classes that are known to be cut along."""

    strangers: list[str] = field(default_factory=list)
    """Averages that would break, in words."""

    resting: list[str] = field(default_factory=list)
    """What may be an average but has not moved so far, in words."""


class Copies:
    """Looks for averaged copies of a model.

    A copy is an average of this model if its weights change while the model trains and no optimizer has them;
    inside an averaging class also if it still has the weights that the model started with. That rules out
    teachers, baselines, second models in training, and what an earlier run has left in a notebook.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._start = _sums(model)
        # What moves from now on is an average, even if it moves before the first survey only.
        for copy in self._find(()).values():
            self._has_changed(copy)

    def survey(self, followed: Collection[nn.Module] = ()) -> Survey:
        """What there is besides the copies that are `followed`."""
        found = self._survey(followed)
        if found.strangers or found.resting:
            # It may be from an earlier run and only not collected yet.
            gc.collect()
            found = self._survey(followed)
        return found

    def _survey(self, followed: Collection[nn.Module]) -> Survey:
        copies = self._find(followed)
        if not copies:
            return Survey()
        moved = {number for number, copy in copies.items() if self._has_changed(copy)}
        copies = {number: copy for number, copy in copies.items() if number in moved or copy not in _TEACHERS}
        may_learn = {
            number for number in moved if any(part.requires_grad for part in copies[number].parameters())
        }
        averaging = _averaging()
        # What may hold a copy, and what may train one, in one pass.
        around = living(averaging | (kinds_of(torch.optim.Optimizer) if may_learn else set()))
        trained = _parameters_in(thing for thing in around if type(thing) not in averaging)
        learning = {
            number
            for number in may_learn
            if any(id(part) in trained or part.grad is not None for part in copies[number].parameters())
        }
        holders = [
            thing
            for thing in around
            if type(thing) in averaging and thing is not self._model and _is_made(thing)
        ]
        return self._sorted(copies, holders, moved, learning)

    def _sorted(
        self, copies: dict[int, nn.Module], holders: list[object], moved: set[int], learning: set[int]
    ) -> Survey:
        survey, others = Survey(), moved - learning
        # Known ones first: what they hold needs no more words if something else holds it, too.
        for holder in sorted(holders, key=lambda holder: not _is_known(type(holder))):
            mine = {id(copy) for copy in copies_in(holder, self._model)} & copies.keys()
            if not mine:
                continue
            kind, has_begun = type(holder), not mine.isdisjoint(moved)
            if not has_begun and not any(self._is_at_start(copies[number]) for number in mine):
                survey.resting.append(kind.__name__)
            elif not _is_known(kind):
                survey.strangers.append(kind.__name__)
            elif learning - mine:
                survey.strangers.append(f"{kind.__name__}, unless it averages the second model in training")
            else:
                survey.known.append(holder)
            others -= mine
            for number in mine:
                del copies[number]
        survey.strangers.extend(
            f"a second {type(copies[number]).__name__} whose weights change without an optimizer"
            for number in others
        )
        return survey

    def _is_at_start(self, copy: nn.Module) -> bool:
        """Whether a copy has the weights that the model has, or began with."""
        sums = _sums(copy)
        return sums == self._start or sums == _sums(self._model)

    def _has_changed(self, copy: nn.Module) -> bool:
        """Whether a copy's weights are different from when it was first seen."""
        sums = _sums(copy)
        return sums != _SEEN.setdefault(self._model, WeakKeyDictionary()).setdefault(copy, sums)

    def _find(self, followed: Collection[nn.Module]) -> dict[int, nn.Module]:
        """Copies that nobody cuts so far, by id."""
        passed = {id(module) for module in (*self._model.modules(), *followed)} | _FOLLOWERS.keys()
        shapes = _shapes(self._model)
        return {
            id(thing): thing
            for thing in living({type(self._model)})
            if isinstance(thing, nn.Module)
            and id(thing) not in passed
            and _is_made(thing)
            and _is_copy(thing, self._model, shapes)
        }


def _is_copy(module: nn.Module, model: nn.Module, shapes: dict[str, tuple[int, ...]]) -> bool:
    return type(module) is type(model) and _shapes(module) == shapes and _is_apart(module, model)


def _is_known(kind: type) -> bool:
    return any(f"{parent.__module__}.{parent.__qualname__}" in KNOWN for parent in kind.__mro__)


def _attributes(holder: object) -> Iterator[object]:
    for value in getattr(holder, "__dict__", {}).values():
        yield from value if isinstance(value, list | tuple) else (value,)


def _averaging() -> set[type]:
    """The classes whose objects may hold an average."""
    return imported(KNOWN) | {kind for kind in kinds_of(nn.Module) if AVERAGES.search(kind.__name__)}


def _is_made(thing: object) -> bool:
    """Whether an object is whole: a module whose constructor is still at work has no parameters."""
    return not isinstance(thing, nn.Module) or "_parameters" in vars(thing)


def _parameters_in(optimizers: Iterable[object]) -> set[int]:
    """The ids of all parameters that these train."""
    groups = [group for optimizer in optimizers for group in vars(optimizer).get("param_groups", [])]
    return {id(parameter) for group in groups for parameter in group["params"]}


def _sums(model: nn.Module) -> str:
    """The sum of each parameter; as text, because NaN equals NaN there."""
    parts = [parameter.detach() for parameter in model.parameters() if not parameter.is_meta]
    return str(
        [
            float((torch.view_as_real(part) if part.is_complex() else part).sum(dtype=torch.float64))
            for part in parts
        ]
    )


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _is_apart(copy: nn.Module, model: nn.Module) -> bool:
    """Whether a module shares no parameter with the model, and has real weights."""
    own = {id(parameter) for parameter in model.parameters()}
    return not any(id(parameter) in own or parameter.is_meta for parameter in copy.parameters())
