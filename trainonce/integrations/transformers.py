"""Hugging Face transformers: a callback for `Trainer`, and `load` for what it has saved.

    Trainer(model, arguments, train_dataset=data, callbacks=[TrainOnceCallback(keep_flops=0.5)])

A callback is not told its trainer, but it needs the trainer's loss, and has to act before weights are loaded.
So it looks up who calls it when the trainer has been built, and puts itself in front of three of its methods.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import MissingPackageError, PrunerError
from trainonce.integrations.accelerate import rewrap
from trainonce.integrations.probe import first_call
from trainonce.integrations.request import PruningRequest, advanced, check_alone
from trainonce.integrations.teaching import answers_of, taught
from trainonce.pruning.distributed import unwrapped_model
from trainonce.pruning.pruner import Pruner
from trainonce.pruning.restoring import restore
from trainonce.storage.checkpoint.folder import write_checkpoint

try:
    from transformers import Trainer, TrainerCallback

    from trainonce.integrations.small_transformers import STATE_FOLDER, load, read_state, saved_epochs
    from trainonce.integrations.transformers_manners import (
        hold_stopping,
        own_names,
        own_weights_trained,
        without_reentrance,
    )
except ImportError as error:
    raise MissingPackageError(
        f"this needs transformers ({error}). Install it with: pip install transformers accelerate"
    ) from error

__all__ = ["TrainOnceCallback", "load"]


class TrainOnceCallback(TrainerCallback):
    """Prunes the model that a `Trainer` trains; `trainer.model` is the small model when it is done.

    Takes the arguments of `trainonce.attach` as keywords. The example is what the first batch calls the model
    with, the number of steps is the trainer's, and the controller learns from the trainer's own
    `compute_loss` on the batch at hand.
    """

    def __init__(self, **options: Any) -> None:
        self._request = PruningRequest.of(options)
        self._trainer: Any = None
        self._batch: tuple[nn.Module, dict[str, Any]] | None = None
        self._saved: dict[str, Any] | None = None
        self._is_asking = False
        self.pruner: Pruner | None = None
        """The pruner; None until the first batch."""

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stand in front of the trainer's methods."""
        trainer = _calling_trainer()
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            raise PrunerError(
                "DeepSpeed and FSDP split weights into pieces that can't be cut. Train on one device or with "
                "DDP (torchrun)."
            )
        if args.torch_compile and args.world_size > 1:
            raise PrunerError(
                "DistributedDataParallel inside torch.compile can't follow a cut. Leave out torch_compile "
                "or train in one process."
            )
        if args.load_best_model_at_end and not self._request.options.get("shrink", True):
            raise PrunerError(
                "load_best_model_at_end needs the small model during training, but shrink=False cuts after "
                "it. Leave one of them out."
            )
        check_alone(self, trainer.callback_handler.callbacks)
        self._trainer = trainer
        self._watch_losses(trainer)
        self._save_and_restore(trainer)
        self._log_shares(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin a run; the pruner is attached at its first batch."""
        if self._trainer is None:
            raise PrunerError(
                "TrainOnceCallback was added too late to restore a checkpoint. Pass it to the Trainer: "
                "Trainer(..., callbacks=[TrainOnceCallback(...)])."
            )
        self._batch = None
        pruner = self.pruner
        if pruner is None:
            return
        if pruner.model is unwrapped_model(self._trainer.model) and pruner.num_steps:
            raise PrunerError(
                f"this callback has pruned this model for {pruner.num_steps} steps already. Build the model, "
                "the Trainer and the callback again; or trainer.remove_callback(TrainOnceCallback) to train "
                "on without pruning."
            )
        # A new model (model_init), or a first batch that was too large (auto_find_batch_size).
        pruner.detach()
        self.pruner = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Advance the pruner after each optimizer step."""
        is_last = state.global_step >= state.max_steps
        # The best weights that are loaded at the end are from before the factors of norms went into them.
        is_last = is_last and not (args.load_best_model_at_end and self._request.options.get("uniform"))
        if self.pruner is not None and advanced(self.pruner, self._loss, is_last=is_last):
            rewrap(self._trainer.accelerator, self._trainer.model_wrapped)
            # A checkpoint of another size could not be loaded at the end, and its score is no rival.
            state.best_metric = state.best_model_checkpoint = state.best_global_step = None
        if self.pruner is not None:
            hold_stopping(self._trainer, until=self.pruner.shrunk)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Make sure that the model is small."""
        if self.pruner is not None:
            self.pruner.finish()

    def _watch_losses(self, trainer: Any) -> None:
        compute_loss = trainer.compute_loss

        @wraps(compute_loss)
        def watched(model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            if model.training and torch.is_grad_enabled() and not self._is_asking:
                self._begin_batch(model, dict(inputs))
            if self.pruner is None or self.pruner.lessons is None or not model.training:
                return compute_loss(model, inputs, *args, **kwargs)
            with answers_of(self.pruner.model) as answers:
                found = compute_loss(model, inputs, *args, **kwargs)
            loss, *rest = found if isinstance(found, tuple) else (found,)
            loss = taught(self.pruner, loss, answers, share=_share_of_step(trainer, kwargs))
            return (loss, *rest) if rest else loss

        trainer.compute_loss = watched

    def _save_and_restore(self, trainer: Any) -> None:
        save_model, load_from_checkpoint = trainer.save_model, trainer._load_from_checkpoint

        @wraps(save_model)
        def save(output_dir: str | None = None, _internal_call: bool = False) -> None:
            # First, so that a run that is killed meanwhile leaves no weights without their shapes.
            if self.pruner is not None and trainer.args.should_save:
                folder, pruner_state = Path(output_dir or trainer.args.output_dir), self.pruner.state_dict()
                if not _internal_call:
                    # No checkpoint, but the result: nobody resumes from it.
                    pruner_state.pop("teacher", None)
                write_checkpoint(folder / STATE_FOLDER, pruner_state)
            with own_names(unwrapped_model(trainer.model)):
                save_model(output_dir, _internal_call)

        @wraps(load_from_checkpoint)
        def load(folder: str, *args: Any, **kwargs: Any) -> None:
            self._saved = read_state(folder)
            self._request.check_same_run(self._saved, trainer.args.max_steps)
            if trainer.args.max_steps <= 0:
                epochs = math.ceil(trainer.args.num_train_epochs)
                self._request.check_same_epochs(saved_epochs(folder), epochs)
            restore(unwrapped_model(trainer.model), self._saved)
            load_from_checkpoint(folder, *args, **kwargs)

        trainer.save_model, trainer._load_from_checkpoint = save, load

    def _log_shares(self, trainer: Any) -> None:
        log = trainer.log

        @wraps(log)
        def log_share(logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            # Beside the losses of training, and in its summary.
            if self.pruner is not None and not logs.keys().isdisjoint({"loss", "train_loss"}):
                logs = {**logs, self._request.budget_name: round(self.pruner.keep_now, 4)}
            log(logs, *args, **kwargs)

        trainer.log = log_share

    def _begin_batch(self, model: nn.Module, inputs: dict[str, Any]) -> None:
        self._batch = model, inputs
        trainer = self._trainer
        if self.pruner is not None or self not in trainer.callback_handler.callbacks:
            # Attached already, or taken out of the trainer before it trains.
            return
        inner = unwrapped_model(model)
        call = first_call(inner, lambda: self._ask(inner, inputs))
        if call is None or call.module is not inner:
            raise PrunerError(
                f"compute_loss does not call the {type(inner).__name__} that is trained. Pass example= with "
                "what it is called with."
            )
        with own_weights_trained(inner):
            self.pruner = self._request.attach(
                inner,
                trainer.optimizer,
                example=call.as_example(),
                total_steps=trainer.state.max_steps,
                state=self._saved,
            )
        self._saved = None

    def _loss(self) -> Tensor:
        assert self._batch is not None
        return self._ask(*self._batch)

    def _ask(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """The trainer's loss on a batch: its mean, whatever other batches are accumulated with it."""
        trainer = self._trainer
        self._is_asking = True
        try:
            with trainer.compute_loss_context_manager(), without_reentrance(model):
                # A copy, because labels are taken out of it.
                return trainer.compute_loss(model, dict(inputs)).mean()
        finally:
            self._is_asking = False


def _share_of_step(trainer: Any, asked: Mapping[str, Any]) -> float:
    """What a batch's mean counts in its loss: its part of the step if the trainer itself won't divide."""
    if "num_items_in_batch" not in asked:
        # The controller's batch, which is accumulated with no other.
        return 1.0
    is_scaled = getattr(trainer, "loss_is_scaled_for_ga", None)
    if is_scaled is None:
        counts = trainer.model_accepts_loss_kwargs and asked["num_items_in_batch"] is not None
        is_scaled = counts or trainer.compute_loss_func is not None
    return 1 / trainer.current_gradient_accumulation_steps if is_scaled else 1.0


def _calling_trainer() -> Any:
    """The trainer whose method this is called from."""
    frame = sys._getframe()
    while frame is not None:
        if isinstance(found := frame.f_locals.get("self"), Trainer):
            return found
        frame = frame.f_back
    raise PrunerError("TrainOnceCallback works with transformers.Trainer and its subclasses only.")
