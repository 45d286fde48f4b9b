"""A run from its first step to its last: epochs, checkpoints, resume, interruption, records."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from trainonce.data.identity.describing import describe
from trainonce.data.identity.keeping import check_resumed, keep_identity
from trainonce.errors import RunInterruptedError, WorkerLostError
from trainonce.messages.plain_text import reason_of
from trainonce.runs import folder as run_folder
from trainonce.runs.records import Records
from trainonce.runs.report.live import Moment, View, warnings_shown
from trainonce.runs.scalars import Scalars, check_place
from trainonce.training.audience import Hearers
from trainonce.training.loop.evaluation import Scores
from trainonce.training.loop.moments import moment_of, record_of
from trainonce.training.loop.processes import Processes
from trainonce.training.loop.progress import Progress
from trainonce.training.loop.signals import StopFlag
from trainonce.training.loop.trainer import StepNews, Trainer
from trainonce.training.resuming.continuity import (
    changed_environment,
    check_config,
    check_saveable,
    words_on_resuming,
)
from trainonce.training.resuming.restoring import restore_trainer
from trainonce.training.settings import RESUMABLE

log = logging.getLogger("trainonce")
SECONDS_BETWEEN_VIEWS = 0.25
MAY_DIFFER = RESUMABLE | {"data_dir", "workers", "download", "weights"}


class Session:
    """A run as one process sees it; only rank 0 writes files and shows progress."""

    def __init__(
        self,
        *,
        out: Path | None,
        config: dict[str, Any],
        data: Any,
        environment: dict[str, Any],
        view: View,
        processes: Processes,
        stop: StopFlag,
        has_scalars: bool,
    ) -> None:
        self.out = out
        self.config = config
        self.data = data
        self.environment = environment
        self.history: list[dict[str, Any]] = []
        self.first_cut_at: int | None = None
        self.cut_at: int | None = None
        """The step at which the model got its final size."""
        self.hearers = Hearers((), (), self.warn)
        self._progress = Progress()
        self._view = view
        self._processes = processes
        self._stop = stop
        self._last_view = self._last_save = time.monotonic()
        self._is_new, self._is_checked = True, False
        self._identity: dict[str, Any] = {}
        self._open_parts = ExitStack()
        if has_scalars:
            # On every process: none may wait for one that has exited.
            check_place(out)
        self._records: Records | None = None
        if out is not None and processes.is_first:
            self._records = Records(out, self.warn, scalars=Scalars(out) if has_scalars else None)

    @property
    def seconds(self) -> float:
        """Of training so far, including the time before an interruption."""
        return self._progress.seconds

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[None]:
        """Lock the run's folder; SettingError if it holds another run, or one that isn't to be resumed."""
        with ExitStack() as stack:
            self._open_parts = stack
            if self._processes.is_first:
                stack.enter_context(warnings_shown(self._view))
            if self._records is not None:
                stack.callback(self._records.close)
            self._processes.on_first(lambda: self._open(resume))
            yield

    def begin(self, trainer: Trainer, lines: Sequence[str]) -> None:
        """Record the run, print its first lines, and restore the newest checkpoint."""
        if self.out is not None:
            check_saveable(trainer)
        self._processes.on_first(lambda: self.hearers.start(self.config))
        self._processes.on_first(self._write_start)
        for line in lines:
            self._tell(line)
        self._restore(trainer)
        self.hearers.begin(trainer, self.history)

    def _restore(self, trainer: Trainer) -> None:
        if self.out is None:
            return
        root = self.out / run_folder.CHECKPOINTS
        state = restore_trainer(root, trainer, self._processes, warn=self.warn, is_new=self._is_new)
        if state is not None:
            self.history, self.cut_at = state["history"], state["cut_at"]
            # Older checkpoints don't have it.
            self.first_cut_at = state.get("first_cut_at")
            loss_sum, loss_count = state["loss"]
            self._progress = Progress(state["seconds"], loss_sum, loss_count)
            self._tell(f"resuming at step {trainer.step} of {trainer.total_steps}")
        if self._records is not None:
            self._records.begin(
                self.history, trainer.controller_samples.tolist() if trainer.pruner is not None else []
            )

    def run(self, trainer: Trainer, score: Callable[[], Scores]) -> None:
        """Train to the end; on SIGTERM or SIGINT, save and raise RunInterruptedError."""
        try:
            self._run(trainer, score)
        except WorkerLostError as error:
            # Batches are fetched between steps, so the trainer is in a consistent state.
            raise WorkerLostError(f"{error} {self._save_and_say_how_to_resume(trainer)}") from None
        except Exception:
            if trainer.step == 0 or not self._is_checked:
                self._forget()
            raise

    def _run(self, trainer: Trainer, score: Callable[[], Scores]) -> None:
        per_epoch = trainer.order.steps_per_epoch
        self._last_save = time.monotonic()
        self._progress.start_clock()
        while True:
            if trainer.step == (len(self.history) + 1) * per_epoch:
                self._end_epoch(trainer, score())
            if trainer.step >= trainer.total_steps:
                return
            for batch in trainer.epoch_batches():
                news = trainer.run_step(batch, stop=self._stop.is_set)
                if not self._is_checked and not news.was_skipped:
                    # Only now does the optimizer have a state.
                    self._check_saveable(trainer)
                self._note(trainer, news)
                if news.must_stop:
                    self._interrupt(trainer)
                if time.monotonic() - self._last_save >= 60 * trainer.settings.save_minutes:
                    self._save(trainer)

    def keep(self, small: nn.Module) -> None:
        """Write the small model; from here on, nothing that fails can lose it."""
        self._processes.on_first(
            lambda: None if self._records is None else self._records.keep(small, self.history)
        )

    def finish(self, report: dict[str, Any]) -> None:
        """Write the report; if that fails, warn, and leave it to `resume`."""
        if self._records is not None:
            try:
                self._records.finish(report)
                self._tell(f"finished after {self.seconds:.0f} s")
            except Exception as error:
                # The small model is safe, and a report is not worth losing the run's last lines.
                place = self._records.folder / run_folder.SMALL
                self.warn(
                    f"no report: {reason_of(error, longest=600)} The small model is in {place}; resume the "
                    "run to write the report."
                )
        self._processes.wait()

    def warn(self, line: str) -> None:
        """Log a warning, and show it, on rank 0 only."""
        self._tell(line, level=logging.WARNING)

    def _open(self, resume: bool) -> None:
        if self.out is None:
            return
        with run_folder.room_in(self.out):
            stage = run_folder.check_start(self.out, resume=resume)
            self._open_parts.enter_context(run_folder.occupied(self.out))
            self._is_new = stage is run_folder.Stage.NEW
            if not self._is_new:
                check_config(self.out, self.config, may_differ=MAY_DIFFER)
            self._identity = describe(self.data)
            if not self._is_new:
                check_resumed(self.out, self._identity)
            run_folder.clear(self.out)

    def _write_start(self) -> None:
        """Written only when the run can start: a refused one must leave nothing to clean up."""
        if self.out is None:
            return
        with run_folder.room_in(self.out):
            changes = (
                []
                if self._is_new
                else changed_environment(self.out / run_folder.ENVIRONMENT, self.environment)
            )
            run_folder.write_start(self.out, self.config, self.environment)
            keep_identity(self.out, self._identity)
            self._open_parts.enter_context(run_folder.logged(self.out))
        if changes:
            self._tell(
                f"environment changed since the run started: {', '.join(changes)}; results may differ by "
                "rounding"
            )

    def _check_saveable(self, trainer: Trainer) -> None:
        if self.out is not None:
            check_saveable(trainer)
        self._is_checked = True

    def _forget(self) -> None:
        """Remove the folder of a run that failed in its first step, so that it can be started again."""
        if (
            self._is_new
            and self._records is not None
            and not (self._records.folder / run_folder.CHECKPOINTS).exists()
        ):
            self._records.forget()

    def _note(self, trainer: Trainer, news: StepNews) -> None:
        self._progress.note_step(None if news.was_skipped else news.loss)
        if news.was_skipped:
            self.warn(f"step {trainer.step - 1} skipped: loss or gradients are not finite")
        if news.was_cut and trainer.pruner is not None:
            if trainer.pruner.shrunk:
                self.cut_at = trainer.step
                self._tell(f"cut at step {trainer.step}; training continues on the small model")
            else:
                self.first_cut_at = trainer.step
                self._tell(f"first cut at step {trainer.step}; the search continues in what is left")
            self.hearers.note_cut(trainer, self.history)
        now = time.monotonic()
        # The last step is shown with its validation, at the end of the epoch.
        is_last = trainer.step >= trainer.total_steps
        if now - self._last_view >= SECONDS_BETWEEN_VIEWS and self._processes.is_first and not is_last:
            self._last_view = now
            self._view.show(self._moment(trainer, news.loss))

    def _moment(self, trainer: Trainer, loss: float) -> Moment:
        last = self.history[-1] if self.history else {}
        return moment_of(trainer, loss=loss, last=last, steps_per_second=self._progress.steps_per_second)

    def _end_epoch(self, trainer: Trainer, scores: Scores) -> None:
        loss = self._progress.mean_loss
        record = {"epoch": len(self.history) + 1, "step": trainer.step, "loss": loss} | record_of(
            trainer, scores
        )
        record["seconds"] = round(self.seconds, 3)
        self._progress.start_epoch()
        self.history.append(record)
        if self._processes.is_first:
            self._view.show(self._moment(trainer, loss if loss is not None else float("nan")))
            log.info("%s", json.dumps({name: value for name, value in record.items() if name != "alive"}))
            if self._records is not None:
                self._records.add(self.history)
        every = trainer.settings.save_epochs
        if (every and record["epoch"] % every == 0) or trainer.step >= trainer.total_steps:
            self._save(trainer)
        self.hearers.end_epoch(trainer, self.history)
        self._progress.start_clock()

    def _save(self, trainer: Trainer) -> bool:
        """Write a checkpoint; False if the disk is full."""
        self._last_save = time.monotonic()
        if self._records is None:
            return True
        state = {
            "trainer": trainer.state_dict(),
            "history": self.history,
            "seconds": self.seconds,
            "first_cut_at": self.first_cut_at,
            "cut_at": self.cut_at,
            "loss": (self._progress.loss_sum, self._progress.loss_count),
        }
        return self._records.save(trainer.step, state, keep_last=trainer.settings.keep_checkpoints)

    def _interrupt(self, trainer: Trainer) -> None:
        words = self._save_and_say_how_to_resume(trainer)
        raise RunInterruptedError(f"interrupted at step {trainer.step} of {trainer.total_steps}. {words}")

    def _save_and_say_how_to_resume(self, trainer: Trainer) -> str:
        return words_on_resuming(self.out, self.config, is_saved=self._save(trainer))

    def _tell(self, line: str, *, level: int = logging.INFO) -> None:
        if self._processes.is_first:
            log.log(level, "%s", line)
            if level < logging.WARNING:
                self._view.say(line)
