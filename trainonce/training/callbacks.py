"""Callbacks: functions of the user's own that a run calls at its turning points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line


@dataclass(frozen=True, slots=True, eq=False)
class RunState:
    """A run as a callback sees it. Look at the model, but leave its weights and mode as they are."""

    model: nn.Module
    """The model in training, which gets smaller with each cut; the average, if there is one."""

    step: int
    total_steps: int
    epoch: int
    """Finished epochs."""

    epochs: int
    record: Mapping[str, Any]
    """The last epoch's numbers, as in `Result.history`; empty before the first."""


class Callback:
    """Base class of callbacks, whose methods do nothing. Implement those you need; subclassing is optional.

    They are called on the first process only. An exception in one of them ends the run, which can be resumed.
    """

    def on_train_begin(self, state: RunState) -> None:
        """Called before the first step, or before the first one after a resume."""

    def on_epoch_end(self, state: RunState) -> None:
        """Called after each epoch, when it is validated and saved."""

    def on_cut(self, state: RunState) -> None:
        """Called after each cut, with the smaller model."""

    def on_train_end(self, result: Any) -> None:
        """Called at the end, with what `fit` returns."""


METHODS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def check_callbacks(callbacks: Any) -> tuple[Any, ...]:
    """The callbacks as a tuple; SettingError for one that would never be called."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise SettingError(f"callbacks must be a list of objects, got {type(callbacks).__name__}.")
    for callback in callbacks:
        if isinstance(callback, type):
            raise SettingError(
                f"callbacks has the class {callback.__name__}. Pass an instance: {callback.__name__}()."
            )
        starting = [name for name in dir(callback) if name.startswith("on_")]
        named = [name for name in starting if callable(getattr(callback, name))]
        unknown = [name for name in named if name not in METHODS]
        if unknown or not named:
            what = f"has {in_one_line(unknown[0], 60)}, which is never called" if unknown else "has no method"
            raise SettingError(
                f"the callback {type(callback).__name__} {what}. The methods are {', '.join(METHODS)}."
            )
    return tuple(callbacks)


def call_all(callbacks: Sequence[Any], method: str, argument: Any) -> None:
    """Call a method of all callbacks that have it."""
    for callback in callbacks:
        if (function := getattr(callback, method, None)) is not None:
            function(argument)
