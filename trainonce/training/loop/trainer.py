"""Optimizer steps: model, optimizer, pruner and EMA, with a state that can be saved and restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.data.sample_rng import mix, seed_everything
from trainonce.data.samples import Draw, Samples
from trainonce.errors import DivergedError, PrunerError, SettingError
from trainonce.pruning.guards.copies import note_teacher
from trainonce.pruning.loading import resume_teaching
from trainonce.pruning.method import Method
from trainonce.pruning.pruner import Pruner
from trainonce.training.batches.order import Drawing, Order, draw_controller_samples, share_of
from trainonce.training.batches.own_order import OwnDrawing
from trainonce.training.batches.sources import count_samples
from trainonce.training.loop.attaching import attach_by
from trainonce.training.loop.average import Average
from trainonce.training.loop.learning_rate import Rates, learning_rate
from trainonce.training.loop.objective import Objective
from trainonce.training.methods import method_of
from trainonce.training.settings import Settings

_STEP, _MIX = 11, 12
"""Purposes that random numbers are drawn for, so that no two streams are the same."""


@dataclass(frozen=True, slots=True)
class StepNews:
    """The outcome of one step."""

    loss: float
    """Mean over this process's part of the batch; may be NaN or infinite if the step was skipped."""

    was_skipped: bool
    was_cut: bool
    must_stop: bool
    """Whether any process got a signal to stop."""


class Trainer:
    """A model in training; all randomness depends on the seed and the step alone, so a run can be resumed."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        train: Samples,
        example: Any,
        settings: Settings,
        objective: Objective,
        drawing: Drawing | OwnDrawing | None = None,
        method: Method | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.rates = Rates(optimizer)
        self.settings = settings
        self.method = method_of(settings) if method is None else method
        epoch_size = len(train) if drawing is None else drawing.num_draws
        self.order = Order(
            torch.arange(len(train)), min(settings.samples_per_step, epoch_size), settings.seed, drawing
        )
        self.step = self.num_skipped = self.num_bad_in_row = 0
        self.average = Average(model, settings.model_ema_decay) if settings.model_ema else None
        self.controller_samples = draw_controller_samples(
            len(train), self.method.controller_share, settings.seed, drawing
        )
        self._train = train
        self._where = objective.where
        self._objective = objective
        self.lessons = objective.lessons
        if self.lessons is not None:
            note_teacher(self.lessons.model)
        self._scaler = objective.where.precision.scaler()
        # The search sees other batches than training does, so it has its own order.
        self._controller_order = Order(
            self.controller_samples,
            min(settings.samples_per_step, len(self.controller_samples)),
            settings.seed + 1,
            drawing.among(self.controller_samples) if isinstance(drawing, Drawing) else None,
        )
        smallest = objective.where.processes.world_size * settings.accumulate
        if self.order.smallest_batch < smallest:
            raise SettingError(
                f"batch_size must be at least {smallest}, one sample per process and accumulation step, got "
                f"{self.order.smallest_batch}."
            )
        self.pruner: Pruner | None = None
        if settings.is_pruning:
            self.pruner = attach_by(settings, self.method, model, optimizer, example, self.total_steps)
        self._wrap()

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.settings.epochs * self.order.steps_per_epoch

    @property
    def result_model(self) -> nn.Module:
        """The model that is evaluated and saved: the EMA, if there is one."""
        return self.average.model if self.average is not None else self.model

    def epoch_batches(self) -> Iterator[list[tuple[Any, Any]]]:
        """For each step left in the epoch, this process's pieces of the batch, one per accumulation step."""
        first, per_epoch = self.step, self.order.steps_per_epoch
        pieces = self._train.batches(self._draws(range(first, (first // per_epoch + 1) * per_epoch)))
        while True:
            batch = [piece for _, piece in zip(range(self.settings.accumulate), pieces, strict=False)]
            if not batch:
                return
            yield batch

    def run_step(self, batch: Sequence[tuple[Any, Any]], *, stop: bool = False) -> StepNews:
        """Train on one batch, unless its loss or gradients are not finite; `stop` reaches all processes."""
        self._seed()
        self.rates.set(learning_rate(self.settings, self.step, self.order.steps_per_epoch))
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        loss = self._backward(batch)
        is_finite = self._gradients_are_finite() and loss == loss and abs(loss) != float("inf")
        is_bad, must_stop = self._where.processes.any_true([not is_finite, stop])
        was_cut = False
        if is_bad:
            self._skip(buffers)
        else:
            self._scaler.step(self.optimizer)
            self.num_bad_in_row = 0
        self._scaler.update()
        if not is_bad:
            if self.pruner is not None:
                was_cut = self.pruner.step(self._controller_loss)
            if was_cut:
                self._follow_cut()
            if self.average is not None:
                self.average.update(self.model)
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return StepNews(loss=loss, was_skipped=is_bad, was_cut=was_cut, must_stop=must_stop)

    def finish(self) -> nn.Module:
        """The small model, cut now if it was not cut during training."""
        if self.pruner is not None:
            num_cuts = len(self.pruner.cuts)
            try:
                self.pruner.finish()
            except PrunerError:
                if not self.num_skipped:
                    raise
                raise DivergedError(
                    f"{self.num_skipped} of {self.total_steps} steps were skipped because loss or gradients "
                    "were not finite: too few are left to make the model small. Lower lr, set clip_grad, or "
                    "check the data, and start a new run."
                ) from None
            self._cut_average(since=num_cuts)
        if self.average is not None:
            self.average.release(self.model)
        return self.result_model

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, as tensors and plain values."""
        state = {
            "step": self.step,
            "num_skipped": self.num_skipped,
            "num_bad_in_row": self.num_bad_in_row,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "optimizer_class": type(self.optimizer).__name__,
            "rates": self.rates.own,
            "scaler": self._scaler.state_dict(),
            "pruner": None if self.pruner is None else self.pruner.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
        }
        return state if self.lessons is None else state | {"teacher": self.lessons.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state_dict, on a new trainer with the same settings."""
        if self.pruner is not None:
            self.pruner.load_state_dict(state["pruner"])
            self._cut_average(since=0)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rates.own = [float(rate) for rate in state.get("rates", self.rates.own)]
        self._scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        resume_teaching(self.lessons, state)
        self.step, self.num_skipped, self.num_bad_in_row = (
            int(state[key]) for key in ("step", "num_skipped", "num_bad_in_row")
        )
        self._wrap()

    def _wrap(self) -> None:
        """Wrap the model in DistributedDataParallel and torch.compile, again after every change of shape."""
        wrapped: nn.Module = self.model
        if self._where.processes.world_size > 1:
            on_gpu = self._where.device.type == "cuda"
            wrapped = nn.parallel.DistributedDataParallel(
                self.model, device_ids=[self._where.device] if on_gpu else None
            )
        self._parallel = wrapped
        self._callable: Any = torch.compile(wrapped) if self.settings.compile else wrapped

    def _draws(self, steps: Sequence[int]) -> Iterator[Draw]:
        processes = self._where.processes
        for step in steps:
            mine = share_of(self.order.batch(step), processes.rank, processes.world_size)
            for piece in mine.tensor_split(self.settings.accumulate):
                yield piece, self.order.look(step)

    def _seed(self) -> None:
        """Seed what the model draws in this step, such as dropout masks."""
        seed_everything(mix(self.settings.seed, _STEP, self.step, self._where.processes.rank))

    def _backward(self, batch: Sequence[tuple[Any, Any]]) -> float:
        world_size, total = self._where.processes.world_size, 0.0
        batch_size = len(self.order.batch(self.step))
        # Where samples can't be counted, all pieces weigh the same.
        alike = batch_size / (world_size * len(batch))
        counts = [count_samples(inputs, targets) or alike for inputs, targets in batch]
        for index, (inputs, targets) in enumerate(batch):
            is_last = index == len(batch) - 1
            # Gradients are synchronized on the last accumulation step only.
            with nullcontext() if world_size == 1 or is_last else self._parallel.no_sync():  # type: ignore
                value = self._objective(
                    self._callable, inputs, targets, seed=mix(self.settings.seed, _MIX, self.step, index)
                )
                # DistributedDataParallel averages over processes; the weight makes that the mean over the
                # batch, also if the parts differ in size.
                weight = counts[index] * world_size / batch_size
                self._scaler.scale(value * weight).backward()
            total += float(value.detach()) * counts[index]
        return total / max(1, sum(counts))

    def _gradients_are_finite(self) -> bool:
        self._scaler.unscale_(self.optimizer)
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.settings.clip_grad is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.clip_grad, norm)
        return bool(norm.isfinite())

    def _skip(self, buffers: list[tuple[Tensor, Tensor]]) -> None:
        # The forward pass has already updated running statistics, perhaps to NaN.
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        self.num_skipped += 1
        self.num_bad_in_row += 1
        if self.num_bad_in_row >= self.settings.max_bad_steps:
            raise DivergedError(
                f"loss or gradients were not finite for {self.num_bad_in_row} steps in a row, up to step "
                f"{self.step}. Lower lr, set clip_grad, or check the data. The weights are those of the last "
                "good step."
            )

    def _controller_loss(self) -> Tensor:
        """The loss on a batch of the samples that are set aside for the controller."""
        processes = self._where.processes
        batch = self._controller_order.batch(self.step)
        is_shared = len(batch) >= 2 * processes.world_size
        mine = share_of(batch, processes.rank, processes.world_size) if is_shared else batch
        inputs, targets = next(iter(self._train.batches([(mine, self._controller_order.look(self.step))])))
        value = self._objective(
            self.model, inputs, targets, seed=mix(self.settings.seed, _MIX, self.step, -1)
        )
        # The pruner averages over processes: as for gradients, the weight makes it the mean of the batch.
        return value * (len(mine) * processes.world_size / len(batch)) if is_shared else value

    def _follow_cut(self) -> None:
        """Bring EMA and wrappers to the model's new shapes."""
        assert self.pruner is not None
        self._cut_average(since=len(self.pruner.cuts) - 1)
        if self.settings.compile:
            torch.compiler.reset()
        self._wrap()

    def _cut_average(self, *, since: int) -> None:
        if self.average is not None and self.pruner is not None:
            for plan in self.pruner.cuts[since:]:
                self.average.cut(plan)
