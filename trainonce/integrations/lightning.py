"""Lightning: a callback for its `Trainer`, and `restore` for checkpoints that are loaded elsewhere.

Trainer(max_epochs=10, callbacks=[TrainOnceCallback(keep_flops=0.5)])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import MissingPackageError, PrunerError
from trainonce.integrations.lightning_steps import name_in, part_of, taught_step, training_step
from trainonce.integrations.probe import ModelCall, first_call
from trainonce.integrations.request import PruningRequest, advanced, check_alone
from trainonce.integrations.small_lightning import KEY, restore, saved_in
from trainonce.messages.plain_text import quoted
from trainonce.pruning.guards.copies import copies_in
from trainonce.pruning.pruner import Pruner
from trainonce.pruning.restored import note_restored

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities import rank_zero_info

    from trainonce.integrations.lightning_averages import averages_of, epochs_of, steps_of
    from trainonce.integrations.lightning_traces import without_traces
    from trainonce.integrations.lightning_watchers import check_company, forget_scores, hold_stopping
except ImportError as error:
    raise MissingPackageError(
        f"this needs lightning ({error}). Install it with: pip install lightning"
    ) from error

__all__ = ["TrainOnceCallback", "restore"]

_STRATEGIES = {"SingleDeviceStrategy", "DDPStrategy"}


class TrainOnceCallback(Callback):
    """Prunes the LightningModule that a `Trainer` fits; it is small when `fit` returns.

    Takes the arguments of `trainonce.attach` as keywords. The example is what the first batch calls the
    module with, and the number of steps is the trainer's estimate.

    Args:
        module: The part to prune, by its name in the LightningModule; None: what `training_step` calls, which
            must have all weights that are trained.
        loss: What the controller learns from: a function of the LightningModule and a batch. None: the loss
            that `training_step` returns, which manual optimization has not.
        options: Arguments of `attach`.
    """

    def __init__(
        self,
        *,
        module: str | None = None,
        loss: Callable[[Any, Any], Tensor] | None = None,
        **options: Any,
    ) -> None:
        self._request = PruningRequest.of(options)
        self._name = module
        self._loss_of = loss
        self._saved: Mapping[str, Any] | None = None
        self._hooked: LightningModule | None = None
        self._num_due = self._total_steps = 0
        self._share: float | None = None
        self.pruner: Pruner | None = None
        """The pruner; None until the first batch."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Put the pruner's state into checkpoints, and restore from it before weights are loaded."""
        if stage == "fit":
            self._check(trainer, pl_module)
        if self._hooked is not None:
            return
        save, load = pl_module.on_save_checkpoint, pl_module.on_load_checkpoint

        def on_save_checkpoint(checkpoint: dict[str, Any]) -> None:
            # Callbacks are not asked when only weights are saved.
            self.on_save_checkpoint(trainer, pl_module, checkpoint)
            save(checkpoint)

        def on_load_checkpoint(checkpoint: dict[str, Any]) -> None:
            # A callback's own hook comes after the weights.
            if KEY in checkpoint or trainer.training:
                saved = saved_in(checkpoint)
                if trainer.training:
                    self._request.check_same_run(saved["pruner"], trainer.max_steps)
                    self._request.check_same_epochs(saved.get("epochs"), _epochs(trainer))
                restore(pl_module, checkpoint)
                self._saved = saved if trainer.training else None
            load(checkpoint)

        setattr(pl_module, "on_save_checkpoint", on_save_checkpoint)  # noqa: B010 - a method's place
        setattr(pl_module, "on_load_checkpoint", on_load_checkpoint)  # noqa: B010
        # By hand there is no loss to add to: what such a step returns is only logged.
        if self._request.options.get("teacher") and pl_module.automatic_optimization:
            own = taught_step(pl_module.training_step, lambda: self.pruner)
            setattr(pl_module, "training_step", own)  # noqa: B010
        self._hooked = pl_module

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave nothing in the module."""
        if self._hooked is not None:
            for name in ("on_save_checkpoint", "on_load_checkpoint", "training_step"):
                vars(self._hooked).pop(name, None)
        self._hooked = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: Any) -> None:
        """Save the pruner's state."""
        if self.pruner is not None:
            state = self.pruner.state_dict()
            if "optimizer_states" not in checkpoint:
                # Only weights are saved, which nobody trains on.
                state.pop("teacher", None)
            checkpoint[KEY] = {"module": self._name, "pruner": state, "epochs": _epochs(trainer)}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the steps of the run, before other callbacks change how batches are accumulated."""
        self._total_steps = _total_steps(trainer, self._request)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Attach at the first batch."""
        if self.pruner is not None:
            return
        call = self._call(pl_module, batch, batch_idx)
        name = name_in(pl_module, call.module)
        if self._name is None and not all(
            _belongs(optimizer, call.module) for optimizer in trainer.optimizers
        ):
            raise PrunerError(
                f"training_step calls {name!r} first, which lacks some of the weights in training. Give the "
                "LightningModule a forward that training_step calls, or name the part to prune: "
                f"TrainOnceCallback(module={name!r})."
            )
        self._name = name
        optimizers = [
            optimizer
            for optimizer in trainer.optimizers
            if not _parameters_of(optimizer).isdisjoint(id(part) for part in call.module.parameters())
        ]
        if self._saved is None:
            # A module that was restored only to have its weights begins a new run.
            note_restored(call.module, ())
        self.pruner = self._request.attach(
            call.module,
            optimizers[0] if len(optimizers) == 1 else optimizers,
            example=call.as_example(),
            total_steps=self._total_steps,
            state=self._saved["pruner"] if self._saved is not None else None,
        )
        for average in averages_of(trainer):
            if copies_in(average, call.module):
                self.pruner.follow(average)
        if self._saved is not None and self.pruner.num_steps >= self._total_steps:
            # Resumed in an epoch that trains nothing anymore.
            self.pruner.finish()
        self._saved = None
        optimizers[0].register_step_post_hook(self._note_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the pruner once per optimizer step."""
        due, self._num_due = self._num_due, 0
        for _ in range(due):
            if self.pruner is None or not self.pruner.is_attached:
                break
            # At once, and not when training ends: other callbacks may put an average into the model then.
            is_last = self.pruner.num_steps + 1 >= self._total_steps
            has_loss = pl_module.automatic_optimization or self._loss_of is not None
            loss = partial(self._loss, trainer, pl_module, batch, batch_idx) if has_loss else None
            if advanced(self.pruner, loss, is_last=is_last):
                _follow(trainer, pl_module)
                rank_zero_info(f"trainonce: {self.pruner!r}")
                self._share = None
        if self.pruner is not None:
            self._tell(trainer, pl_module, self.pruner)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make sure that the model is small."""
        if self.pruner is not None:
            self.pruner.finish()

    def _tell(self, trainer: Any, pl_module: LightningModule, pruner: Pruner) -> None:
        if not pruner.shrunk:
            hold_stopping(trainer)
        if self._share is None or pruner.num_steps % max(1, trainer.log_every_n_steps) == 0:
            # Counting takes longer than some training steps.
            self._share = pruner.keep_now
        pl_module.log(self._request.budget_name, self._share, prog_bar=True)

    def _note_step(self, *_: Any) -> None:
        self._num_due += 1

    def _check(self, trainer: Trainer, pl_module: LightningModule) -> None:
        check_alone(self, getattr(trainer, "callbacks", ()))
        check_company(trainer)
        kinds = {kind.__name__ for kind in type(trainer.strategy).__mro__}
        if kinds.isdisjoint(_STRATEGIES):
            raise PrunerError(
                f"{type(trainer.strategy).__name__} splits or moves weights, which can't be cut then. Train "
                "on one device or with strategy='ddp'."
            )
        has_loss = pl_module.automatic_optimization or self._loss_of is not None
        if self._request.needs_loss and not has_loss:
            raise PrunerError(
                "with manual optimization, training_step returns no loss for the controller to learn from. "
                "Pass one: TrainOnceCallback(loss=lambda module, batch: ...)."
            )
        if self.pruner is not None:
            raise PrunerError(
                f"this callback has pruned for {self.pruner.num_steps} steps already. Fit again with a new "
                "Trainer and callback, or with a Trainer without it to train on without pruning."
            )

    def _call(self, pl_module: LightningModule, batch: Any, batch_idx: int) -> ModelCall:
        part = pl_module if self._name is None else part_of(pl_module, self._name)
        with without_traces(pl_module):
            call = first_call(part, lambda: training_step(pl_module, batch, batch_idx))
        if call is None or (self._name is not None and call.module is not part):
            what = (
                f"module={quoted(self._name)}"
                if self._name is not None
                else "any part of the LightningModule"
            )
            raise PrunerError(
                f"training_step does not call {what}, so its inputs can't be seen. Name a part that it "
                "calls: TrainOnceCallback(module='net')."
            )
        return call

    def _loss(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> Tensor:
        with without_traces(pl_module), trainer.precision_plugin.train_step_context():
            if self._loss_of is not None:
                return taught_step(self._loss_of, lambda: self.pruner)(pl_module, batch)
            output = training_step(pl_module, batch, batch_idx)
        loss = output["loss"] if isinstance(output, Mapping) else output
        # None skips the batch, and what is not finite skips the controller's update.
        return torch.tensor(torch.nan, requires_grad=True) if loss is None else loss


def _follow(trainer: Trainer, pl_module: LightningModule) -> None:
    """Let what looks at the whole training follow a cut."""
    strategy: Any = trainer.strategy
    if isinstance(strategy.model, nn.parallel.DistributedDataParallel):
        # It does not notice new shapes.
        strategy.model = pl_module
        strategy.configure_ddp()
    forget_scores(trainer)


def _total_steps(trainer: Trainer, request: PruningRequest) -> int:
    steps = request.options.get("total_steps", steps_of(trainer))
    if not 0 < steps < float("inf"):
        raise PrunerError(
            "the length of this run is not known. Set the Trainer's max_steps, or pass "
            "TrainOnceCallback(total_steps=...)."
        )
    return int(steps)


def _epochs(trainer: Trainer) -> int | None:
    """The length of a run in epochs; None if it is said in steps."""
    return None if trainer.max_steps > 0 else epochs_of(trainer)


def _parameters_of(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(part) for group in optimizer.param_groups for part in group["params"]}


def _belongs(optimizer: torch.optim.Optimizer, module: nn.Module) -> bool:
    """Whether an optimizer trains this module only."""
    return _parameters_of(optimizer) <= {id(part) for part in module.parameters()}
