"""What follows a run: its view, the user's callbacks, and loggers, whose failures don't stop it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainonce.errors import SettingError
from trainonce.messages.plain_text import kind_and_reason, reason_of
from trainonce.runs.loggers import Logger, MLflow, Wandb
from trainonce.runs.report.live import View
from trainonce.runs.scalars import numbers_of
from trainonce.training.callbacks import RunState, call_all, check_callbacks
from trainonce.training.loop.trainer import Trainer
from trainonce.training.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Audience:
    """Who `fit` was told to tell."""

    view: View | None = None
    quiet: bool = False
    callbacks: Sequence[Any] = ()
    loggers: Sequence[Logger] = ()


NOBODY = Audience()


def check_audience(audience: Audience) -> None:
    """Raise SettingError for a view, a callback or a logger that can't be told anything."""
    view, loggers = audience.view, audience.loggers
    if view is not None and not all(callable(getattr(view, name, None)) for name in ("show", "say", "close")):
        raise SettingError(f"view must have the methods show, say and close, got {type(view).__name__}.")
    if view is not None and audience.quiet:
        raise SettingError("view and quiet can't be combined. Pass one of them.")
    check_callbacks(audience.callbacks)
    if not isinstance(loggers, Sequence) or isinstance(loggers, str):
        raise SettingError(f"loggers must be a list of objects, got {type(loggers).__name__}.")
    for logger in loggers:
        if isinstance(logger, type) or not isinstance(logger, Logger):
            name = logger.__name__ if isinstance(logger, type) else type(logger).__name__
            raise SettingError(
                f"the logger {name} is not an object with the methods start, log and finish. Pass one such "
                "as trainonce.loggers.Wandb()."
            )


def named_loggers(settings: Settings) -> list[Logger]:
    """The loggers that the settings name; SettingError if their package is not installed."""
    return [make() for is_wanted, make in ((settings.wandb, Wandb), (settings.mlflow, MLflow)) if is_wanted]


class Hearers:
    """The callbacks and loggers of a run; on all processes but the first there are none."""

    def __init__(
        self, callbacks: Sequence[Any], loggers: Sequence[Logger], tell: Callable[[str], None]
    ) -> None:
        self._callbacks = callbacks
        self._loggers = list(loggers)
        self._tell = tell
        self._started: list[Logger] = []
        self._failed: list[Logger] = []
        self._summary: dict[str, float] = {}

    def start(self, config: Mapping[str, Any]) -> None:
        """Start the loggers; SettingError if one can't, so that no run goes unlogged by mistake."""
        for logger in self._loggers:
            try:
                logger.start(config)
            except Exception as error:
                # A logger of the user's, or somebody's server, may raise anything.
                reason = reason_of(error) if isinstance(error, SettingError) else kind_and_reason(error)
                raise SettingError(
                    f"the logger {type(logger).__name__} can't start ({reason}). Set it up, or leave it out."
                ) from error
            self._started.append(logger)

    def begin(self, trainer: Trainer, history: Sequence[Mapping[str, Any]]) -> None:
        """Tell the loggers of all epochs so far, and the callbacks that training begins."""
        for record in history:
            self._log(record)
        call_all(self._callbacks, "on_train_begin", _state(trainer, history))

    def end_epoch(self, trainer: Trainer, history: Sequence[Mapping[str, Any]]) -> None:
        """Tell of the last epoch."""
        self._log(history[-1])
        call_all(self._callbacks, "on_epoch_end", _state(trainer, history))

    def note_cut(self, trainer: Trainer, history: Sequence[Mapping[str, Any]]) -> None:
        """Tell the callbacks that the model was cut."""
        call_all(self._callbacks, "on_cut", _state(trainer, history))

    def end(self, result: Any) -> None:
        """Tell the callbacks of the result, and keep its figures for the loggers."""
        after = result.report.get("after") or {}
        found = {name: after.get(name) for name in ("macs", "parameters", "bytes", "top1", "validation_loss")}
        found["latency_ms"] = (after.get("latency_ms") or {}).get("median")
        found |= after.get("metrics") or {}
        self._summary = {name: float(value) for name, value in found.items() if value is not None}
        call_all(self._callbacks, "on_train_end", result)

    def close(self) -> None:
        """End the loggers, whether the run was finished or not; those that have failed are not left open."""
        for logger in self._started:
            self._attempt(logger, lambda logger=logger: logger.finish(self._summary))
        self._started, self._failed = [], []

    def _log(self, record: Mapping[str, Any]) -> None:
        numbers = numbers_of(record)
        for logger in self._started:
            if logger not in self._failed:
                self._attempt(logger, lambda logger=logger: logger.log(numbers, int(record["step"])))

    def _attempt(self, logger: Logger, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            # No run depends on its loggers; the records in its folder have everything.
            if logger in self._failed:
                return
            self._failed.append(logger)
            self._tell(
                f"the logger {type(logger).__name__} has failed ({kind_and_reason(error)}). Training "
                "continues without it."
            )


def _state(trainer: Trainer, history: Sequence[Mapping[str, Any]]) -> RunState:
    return RunState(
        model=trainer.result_model,
        step=trainer.step,
        total_steps=trainer.total_steps,
        epoch=trainer.step // trainer.order.steps_per_epoch,
        epochs=trainer.settings.epochs,
        record=history[-1] if history else {},
    )
