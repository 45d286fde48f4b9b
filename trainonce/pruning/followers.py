"""Averaged copies of a model that are cut whenever it is, in what the user has named or what was found.

The average after a cut is the cut of the average: the same numbers in every entry that stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from trainonce.errors import PlanError, PrunerError
from trainonce.execution.restoring import snapshot
from trainonce.messages.plain_text import reason_of
from trainonce.pruning.guards.copies import Copies, copies_in
from trainonce.pruning.guards.shadows import Shadow, shadows_in
from trainonce.pruning.notices import Notices
from trainonce.structure.plan import Plan
from trainonce.structure.settings import SettingChange
from trainonce.surgery.settings import HELD_AS
from trainonce.surgery.settling import Scales, settle
from trainonce.surgery.slicing import apply_plan

_OWN = frozenset({"_modules", "_parameters", "_buffers"})
"""Attributes in which a module keeps what `apply_plan` has cut already."""

_DEPTH = 4
"""How deep lists in lists are searched; one may contain itself."""


class Followers:
    """What follows one model: the holders that were named, and those of known kinds that are found."""

    def __init__(self, model: nn.Module, named: Sequence[object] | None, notices: Notices) -> None:
        self._model = model
        self._notices = notices
        self._copies = Copies(model)
        self._holders: list[object] = []
        self._is_complete = named is not None
        if named is not None and (isinstance(named, str) or not isinstance(named, Sequence)):
            raise PrunerError(
                f"followers must be a list of averaged copies, got {type(named).__name__}. For example: "
                "followers=[ema]."
            )
        for holder in named or ():
            self.add(holder)

    def add(self, holder: object) -> None:
        """Cut the copies in this from now on, too; PrunerError if there are none."""
        self._copies_in(holder)
        if not any(holder is other for other in self._holders):
            self._holders.append(holder)

    def look(self, *, is_last: bool = False) -> list[object]:
        """Averages of known kinds that were not named; PrunerError if there is one that can't be cut.

        Before a cut, which is the last time to look, doubtful ones are worth a warning.
        """
        survey = self._copies.survey([copy for holder in self._holders for copy in self._found_in(holder)])
        if survey.strangers and not self._is_complete:
            raise PrunerError(
                f"an averaged copy of this model ({survey.strangers[0]}) would not follow when the model is "
                "cut. Pass attach(..., followers=[it]), or followers=[] if it is not an "
                "average of this model."
            )
        for words in (*survey.strangers, *survey.resting) if is_last else ():
            self._notices.once(
                f"copy: {words}",
                f"a copy of this model ({words}) is not cut with it. If it is an average of this model, pass "
                "attach(..., followers=[it]).",
            )
        return survey.known

    @contextmanager
    def cutting(self, *plans: Plan) -> Iterator[None]:
        """A context in which the model is cut by these plans; if it is, all followers have been, too."""
        holders = [*self._holders, *self.look(is_last=True)]
        found = [self._copies_in(holder) for holder in holders]
        copies = {id(copy): copy for modules, _ in found for copy in modules}
        shadows = {id(shadow.tensor): shadow for _, tensors in found for shadow in tensors}
        kept_aside = [_Aside.of(holder, [self._model, *copies.values()]) for holder in holders]
        restores = [snapshot(copy) for copy in copies.values()]
        restores += [
            partial(setattr, shadow.tensor, "data", shadow.tensor.data) for shadow in shadows.values()
        ]
        try:
            for copy in copies.values():
                _cut(copy, plans)
            for shadow in shadows.values():
                shadow.cut(plans)
            yield
        except BaseException:
            for restore in restores:
                restore()
            raise
        for aside in kept_aside:
            aside.renew()

    def settle(self, changes: Sequence[SettingChange], scales: Scales) -> None:
        """Settle all followers, as the model has been."""
        for holder in [*self._holders, *self.look()]:
            modules, shadows = self._copies_in(holder)
            for copy in modules:
                settle(copy, changes if vars(copy).get(HELD_AS) is not None else ())
            for shadow in shadows:
                if shadow.parameter in scales:
                    shadow.tensor.data.copy_(scales[shadow.parameter](shadow.tensor.data))

    def _copies_in(self, holder: object) -> tuple[list[nn.Module], list[Shadow]]:
        """The copies in a holder; averages of bare tensors count only where no module is."""
        modules = self._found_in(holder)
        shadows = [] if modules else shadows_in(holder, self._model)
        if not modules and not shadows:
            raise PrunerError(
                f"the follower {type(holder).__name__} holds no copy of this model: no "
                f"{type(self._model).__name__} with the same shapes and weights of its own, nor a list or "
                "dict of such tensors. Pass a copy made from the model as it is now, or "
                "an object that has one as an attribute."
            )
        return modules, shadows

    def _found_in(self, holder: object) -> list[nn.Module]:
        return copies_in(holder, self._model)


def _cut(copy: nn.Module, plans: Iterable[Plan]) -> None:
    try:
        for plan in plans:
            apply_plan(copy, plan)
    except (PlanError, RuntimeError) as error:
        raise PrunerError(
            f"a follower of this model, a {type(copy).__name__}, can't be cut with it "
            f"({reason_of(error, 300)}) Nothing was cut; pass an unchanged copy of the model."
        ) from error


class _Aside:
    """Tensors that a holder keeps besides its copy, and that are views of weights that a cut replaces.

    Ultralytics' ModelEMA keeps lists of the tensors that it averages. After a cut they would be the old ones,
    and the average would go on without the model.
    """

    def __init__(self, holder: Any, owners: dict[int, Tensor]) -> None:
        self._holder = holder
        self._owners = owners

    @classmethod
    def of(cls, holder: object, models: Iterable[nn.Module]) -> _Aside:
        """What a holder keeps of these models; PrunerError if it is a part of a tensor."""
        weights = {
            tensor.untyped_storage().data_ptr(): tensor
            for model in models
            for tensor in (*model.parameters(), *model.buffers())
            if tensor.numel()
        }
        owners: dict[int, Tensor] = {}
        for name, value in _own_attributes(holder):
            for tensor in _tensors_in(value):
                owner = weights.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
                if owner is None or owner is tensor:
                    continue
                if (tensor.shape, tensor.stride()) != (owner.shape, owner.stride()):
                    raise PrunerError(
                        f"the follower {type(holder).__name__} keeps parts of weights in {name!r}, which a "
                        "cut would leave behind. Keep whole tensors there, or none."
                    )
                owners[id(tensor)] = owner
        return cls(holder, owners)

    def renew(self) -> None:
        """Put the weights as they are now in the places of those that were cut."""
        if not self._owners:
            return
        for name, value in _own_attributes(self._holder):
            vars(self._holder)[name] = self._renewed(value)

    def _renewed(self, value: Any, depth: int = _DEPTH) -> Any:
        if isinstance(value, Tensor):
            return self._owners[id(value)].detach() if id(value) in self._owners else value
        if not depth:
            return value
        if isinstance(value, list):
            value[:] = [self._renewed(part, depth - 1) for part in value]
        elif isinstance(value, dict):
            value.update({key: self._renewed(part, depth - 1) for key, part in value.items()})
        elif type(value) is tuple:
            return tuple(self._renewed(part, depth - 1) for part in value)
        return value


def _own_attributes(holder: object) -> list[tuple[str, Any]]:
    return [item for item in getattr(holder, "__dict__", {}).items() if item[0] not in _OWN]


def _tensors_in(value: Any, depth: int = _DEPTH) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and (isinstance(value, list | dict) or type(value) is tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part, depth - 1)
