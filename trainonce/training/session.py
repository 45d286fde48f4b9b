"""A run from its first step to its last: takes a trainer through its epochs, saves, resumes, stops when asked, writes down what happens."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from trainonce import cost
from trainonce.checkpoint import find_newest
from trainonce.checkpoint.folder import read_checkpoint
from trainonce.checkpoint.rotation import checkpoint_path
from trainonce.reading import ReaderLost
from trainonce.report.live import Moment, View, warnings_shown
from trainonce.training import run_folder
from trainonce.training.evaluation import Scores
from trainonce.training.limits import BadSetting
from trainonce.training.processes import Processes
from trainonce.training.records import Records
from trainonce.training.scalars import Scalars, check_installed, check_place
from trainonce.training.settings import RESUMABLE
from trainonce.training.signals import Interrupted, StopFlag
from trainonce.training.trainer import StepNews, Trainer

log = logging.getLogger("trainonce")
SECONDS_BETWEEN_VIEWS = 0.25
MAY_DIFFER = RESUMABLE | {"data_dir", "workers", "download"}


class Session:
    """One process's part in a run; only the first process writes and shows anything."""

    def __init__(
        self,
        *,
        out: Path | None,
        config: dict[str, Any],
        environment: dict[str, Any],
        view: View,
        processes: Processes,
        stop: StopFlag,
        has_scalars: bool,
    ) -> None:
        self.out = out
        self.config = config
        self.environment = environment
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        """Of training so far, the time before interruptions included."""
        self._view = view
        self._processes = processes
        self._stop = stop
        self._loss_sum, self._loss_count = 0.0, 0
        self._steps_per_second = 0.0
        self._last_view = self._last_save = self._last_step = time.monotonic()
        self._cut_at: int | None = None
        if has_scalars:
            # On every process: none may wait for one that has ended.
            check_installed()
            check_place(out)
        self._records: Records | None = None
        if out is not None and processes.is_first:
            self._records = Records(out, self.warn, scalars=Scalars(out) if has_scalars else None)

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[None]:
        """The run's folder, for this run alone; refused if it holds another run, or one that `resume` was not asked for."""
        with ExitStack() as stack:
            if self._processes.is_first:
                stack.enter_context(warnings_shown(self._view))
            if self._records is not None:
                stack.callback(self._records.close)
            refusal: Exception | None = None
            if self.out is not None and self._processes.is_first:
                try:
                    with run_folder.room_in(self.out):
                        self._open(self.out, resume, stack)
                except ValueError as error:
                    refusal = error
            (is_refused,) = self._processes.any_true([refusal is not None])
            if refusal is not None:
                raise refusal
            if is_refused:
                raise BadSetting("the first process could not start; it says why.")
            yield

    def restore(self, trainer: Trainer) -> None:
        """Bring the trainer to where the run was left, if it was."""
        if self.out is None:
            return
        found, root = None, self.out / run_folder.CHECKPOINTS
        if self._processes.is_first:
            found = find_newest(root)
            if found is not None and found.refused:
                self.warn(f"a checkpoint was refused, step {found.step} is used instead: {found.refused[0]}")
        step = self._processes.from_first(-1 if found is None else found.step)
        if step >= 0:
            state = found.state if found is not None else read_checkpoint(checkpoint_path(root, step))
            trainer.load_state_dict(state["trainer"])
            self.history, self.seconds, self._cut_at = state["history"], state["seconds"], state["cut_at"]
            self._loss_sum, self._loss_count = state["loss"]
            self._tell(f"going on at step {step} of {trainer.total_steps}")
        if self._records is not None:
            self._records.begin(self.history, trainer.controller_samples.tolist() if trainer.pruner is not None else [])

    def run(self, trainer: Trainer, score: Callable[[], Scores]) -> None:
        """Train to the end; raises Interrupted after having saved, if a signal asked for it."""
        try:
            self._run(trainer, score)
        except ReaderLost as error:
            # Batches are fetched between steps, so the trainer is whole.
            raise ReaderLost(f"{error} {self._save_and_say_how_to_go_on(trainer)}") from None

    def _run(self, trainer: Trainer, score: Callable[[], Scores]) -> None:
        per_epoch = trainer.order.steps_per_epoch
        self._last_step = self._last_save = time.monotonic()
        while True:
            if trainer.step == (len(self.history) + 1) * per_epoch:
                self._end_epoch(trainer, score())
            if trainer.step >= trainer.total_steps:
                return
            for batch in trainer.epoch_batches():
                news = trainer.run_step(batch, stop=self._stop.is_set)
                self._note(trainer, news)
                if news.must_stop:
                    self._interrupt(trainer)
                if time.monotonic() - self._last_save >= 60 * trainer.settings.save_minutes:
                    self._save(trainer)

    def finish(self, small: nn.Module, report: dict[str, Any]) -> None:
        """Write the small model and the report."""
        if self._records is not None:
            self._records.finish(small, report)
            self._tell(f"finished after {self.seconds:.0f} s")
        self._processes.wait()

    def warn(self, line: str) -> None:
        """Say a line that the user should see, once for all processes."""
        self._tell(line, level=logging.WARNING)

    def describe_schedule(self, trainer: Trainer) -> dict[str, Any]:
        """When the phases began, in steps."""
        phases: dict[str, int | None] = {}
        if trainer.pruner is not None:
            timetable = trainer.pruner.schedule.in_steps(trainer.total_steps)
            phases = {"search": timetable.search_from, "shrink": timetable.shrink_from, "settle": timetable.settle_from}
            phases["small"] = self._cut_at
        return {"steps_per_epoch": trainer.order.steps_per_epoch, "total_steps": trainer.total_steps, "phases": phases}

    def _open(self, out: Path, resume: bool, stack: ExitStack) -> None:
        stage = run_folder.check_start(out, resume=resume)
        stack.enter_context(run_folder.occupied(out))
        if stage is run_folder.Stage.UNFINISHED:
            run_folder.check_same(out, self.config, may_differ=MAY_DIFFER)
        run_folder.clear(out)
        run_folder.write_start(out, self.config, self.environment)
        stack.enter_context(run_folder.logged(out))

    def _note(self, trainer: Trainer, news: StepNews) -> None:
        now = time.monotonic()
        passed, self._last_step = now - self._last_step, now
        self.seconds += passed
        rate = 1 / max(passed, 1e-6)
        self._steps_per_second = 0.95 * self._steps_per_second + 0.05 * rate if self._steps_per_second else rate
        if news.was_skipped:
            self._tell(f"step {trainer.step - 1} was skipped: its loss or gradients are not finite", level=logging.WARNING)
        else:
            self._loss_sum += news.loss
            self._loss_count += 1
        if news.was_cut and trainer.pruner is not None:
            if trainer.pruner.shrunk:
                self._cut_at = trainer.step
                self._tell(f"the model was cut at step {trainer.step} and trains on small")
            else:
                self._tell(f"a first part of the model was cut at step {trainer.step}; the search goes on in what is left")
        if now - self._last_view >= SECONDS_BETWEEN_VIEWS and self._processes.is_first:
            self._last_view = now
            self._view.show(self._moment(trainer, news.loss))

    def _moment(self, trainer: Trainer, loss: float) -> Moment:
        pruner = trainer.pruner
        alive = list(pruner.alive.values()) if pruner is not None else []
        return Moment(
            step=trainer.step,
            total_steps=trainer.total_steps,
            epoch=trainer.step / trainer.order.steps_per_epoch,
            epochs=trainer.settings.epochs,
            phase="dense" if pruner is None else str(pruner.phase.value),
            loss=loss,
            lr=trainer.optimizer.param_groups[0]["lr"],
            top1=self.history[-1]["top1"] if self.history else None,
            keep_flops=None if pruner is None else pruner.keep_flops_now,
            keep_flops_target=None if pruner is None else pruner.keep_flops_target,
            num_alive=sum(count for count, _ in alive),
            num_units=sum(total for _, total in alive),
            steps_per_second=self._steps_per_second,
        )

    def _end_epoch(self, trainer: Trainer, scores: Scores) -> None:
        loss = self._loss_sum / self._loss_count if self._loss_count else None
        record = {"epoch": len(self.history) + 1, "step": trainer.step, "loss": loss} | _describe(trainer, scores)
        record["seconds"] = round(self.seconds, 3)
        self._loss_sum, self._loss_count = 0.0, 0
        self.history.append(record)
        if self._processes.is_first:
            self._view.show(self._moment(trainer, loss if loss is not None else float("nan")))
            log.info("%s", json.dumps({name: value for name, value in record.items() if name != "alive"}))
            if self._records is not None:
                self._records.add(self.history)
        every = trainer.settings.save_epochs
        if (every and record["epoch"] % every == 0) or trainer.step >= trainer.total_steps:
            self._save(trainer)
        self._last_step = time.monotonic()

    def _save(self, trainer: Trainer) -> bool:
        """Write a checkpoint; False if the disk didn't take it."""
        self._last_save = time.monotonic()
        if self._records is None:
            return True
        state = {
            "trainer": trainer.state_dict(),
            "history": self.history,
            "seconds": self.seconds,
            "cut_at": self._cut_at,
            "loss": (self._loss_sum, self._loss_count),
        }
        return self._records.save(trainer.step, state, keep_last=trainer.settings.keep_checkpoints)

    def _interrupt(self, trainer: Trainer) -> None:
        words = self._save_and_say_how_to_go_on(trainer)
        raise Interrupted(f"stopped at step {trainer.step} of {trainer.total_steps}. {words}")

    def _save_and_say_how_to_go_on(self, trainer: Trainer) -> str:
        if self.out is None:
            return "Nothing is saved, because no out was given."
        advice = f"Go on with: trainonce train --resume {self.out}"
        return advice if self._save(trainer) else f"This step could not be saved: make room first. {advice}"

    def _tell(self, line: str, *, level: int = logging.INFO) -> None:
        if self._processes.is_first:
            log.log(level, "%s", line)
            if level < logging.WARNING:
                self._view.say(line)


def _describe(trainer: Trainer, scores: Scores) -> dict[str, Any]:
    pruner = trainer.pruner
    found: dict[str, Any] = {
        "validation_loss": scores.loss,
        "top1": scores.top1,
        "top5": scores.top5,
        "lr": trainer.optimizer.param_groups[0]["lr"],
        "phase": "dense" if pruner is None else str(pruner.phase.value),
        "keep_flops": 1.0,
        "controller_loss": None,
        "num_skipped": trainer.num_skipped,
    }
    if pruner is not None:
        masks = pruner.masks
        found["keep_flops"] = float(cost.macs(pruner.partition, masks)) / pruner.partition.macs
        found["keep_params"] = float(cost.parameters(pruner.partition, masks)) / pruner.partition.num_parameters
        found["controller_loss"] = pruner.controller_loss
        found["alive"] = {name: list(counts) for name, counts in pruner.alive.items()}
    return found
