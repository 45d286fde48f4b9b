"""Ultralytics: `prune` a YOLO while its own `train` trains it.

    model = prune(YOLO("yolo11n.yaml"), keep_flops=0.5)
    model.train(data="coco8.yaml", epochs=100)

Their trainer builds models from a yaml, which can't describe the small one, and keeps the average of the
weights as what it validates and saves. So the pruner follows the trainer through callbacks, the average is
cut with the model, and models are built here where the yaml would give the dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from trainonce.errors import MissingPackageError, PrunerError
from trainonce.integrations.request import PruningRequest
from trainonce.integrations.small_yolo import STATE, is_marked, marked, trainable, unmarked, without_features
from trainonce.integrations.yolo_settings import check_arguments, count_steps, image_for
from trainonce.integrations.yolo_teaching import YoloLessons, check_yolo_teacher
from trainonce.messages.plain_text import quoted
from trainonce.pruning.guards.copies import follows_by_itself
from trainonce.pruning.pruner import Pruner
from trainonce.pruning.restoring import restore

try:
    from ultralytics.engine.model import Model
    from ultralytics.nn.tasks import load_checkpoint
    from ultralytics.utils import LOGGER
except ImportError as error:
    raise MissingPackageError(
        f"this needs ultralytics ({error}). Install it with: pip install 'ultralytics>=8.4,<8.5'"
    ) from error

_EVENTS = (
    "on_pretrain_routine_start",
    "on_pretrain_routine_end",
    "on_train_batch_end",
    "on_train_epoch_end",
    "teardown",
)
"""What Ultralytics calls; a method of the same name answers."""

KEEPS_SIZE = (
    "the last training made this model small, so this one keeps its size. To cut more, call prune again."
)


def prune(model: Any, **options: Any) -> Any:
    """The same YOLO, whose next `train` makes it smaller: `best.pt` and `last.pt` are the small average.

    One after that keeps the size.

    Example: `prune(YOLO("yolo11n.pt"), keep_flops=0.5).train(data="coco8.yaml", epochs=100)`

    Args:
        model: A YOLO of any task, from a yaml or a checkpoint. `prune(YOLO("last.pt"), ...)` with the same
            options and `train(resume=True)` goes on with a run that was interrupted.
        options: The budget, `keep_flops` or `keep_params`, and what else `trainonce.attach` takes. The
            example is an image of the size that is trained on, and the number of steps is the trainer's.
            While it trains, the pruner is `model.trainer.pruner`. A `teacher` needs a loss of its own.
    """
    check_yolo_teacher(options.get("teacher"), Model)
    return _Pruning(PruningRequest.of(options)).added_to(model)


def keep_size(model: Any) -> Any:
    """The same YOLO, whose `train` goes on with the sizes that it has, not with those in its yaml.

    Example: `keep_size(YOLO("best.pt")).train(data="coco8.yaml", epochs=10)`
    """
    return _Building().added_to(model)


class _Building:
    """Callbacks that have a trainer build the small model."""

    def added_to(self, model: Any) -> Any:
        """The YOLO with these callbacks, in place of those that were added here before."""
        if not isinstance(model, Model):
            raise PrunerError(f"expected a YOLO, got {type(model).__name__}. Pass YOLO('yolo11n.pt').")
        model._check_is_pytorch_model()
        for event, functions in model.callbacks.items():
            model.callbacks[event] = [
                function for function in functions if not isinstance(_owner_of(function), _Building)
            ]
        for event in _EVENTS:
            if hasattr(self, event):
                model.add_callback(event, getattr(self, event))
        return model

    def on_pretrain_routine_start(self, trainer: Any) -> None:
        """Stand in front of what builds the trainer's model."""
        get_model = trainer.get_model

        @wraps(get_model)
        def build(cfg: Any = None, weights: Any = None, verbose: bool = True) -> nn.Module:
            if not is_marked(cfg):
                return get_model(cfg=cfg, weights=weights, verbose=verbose)
            return self._built(trainer, lambda: get_model(cfg=unmarked(cfg), verbose=verbose), weights)

        trainer.get_model = build

    def _built(self, trainer: Any, build_dense: Callable[[], Any], weights: Any) -> nn.Module:
        """The model for a checkpoint of a run with trainonce: `weights` has its sizes."""
        return trainable(weights, num_classes=trainer.data["nc"])

    def __deepcopy__(self, memo: Any) -> _Building:
        return self

    def __reduce__(self) -> NoReturn:
        # Callbacks are pickled for one purpose: to start one process per device.
        raise PrunerError("a YOLO can be pruned on one device only. Pass a single one: train(device=0).")


class _Pruning(_Building):
    """Callbacks that prune the model of a trainer, with all that is remembered of its run."""

    def __init__(self, request: PruningRequest) -> None:
        self._request = request
        self._saved: Mapping[str, Any] | None = None
        self._batch: Mapping[str, Any] = {}
        self._has_stepped = self._was_small = False
        self._has_met_budget = self._keeps_size = False
        self._total_steps = 0
        self._average: object = None
        self._lessons: YoloLessons | None = None
        self._undo: list[Callable[[], None]] = []

    def on_pretrain_routine_start(self, trainer: Any) -> None:
        """Refuse what can't be pruned, and keep the batches of a trainer that is being made."""
        check_arguments(trainer)
        self._saved, self._batch, self._undo = None, {}, []
        self._has_stepped = self._was_small = self._keeps_size = False
        super().on_pretrain_routine_start(trainer)
        trainer.pruner = None
        preprocess = trainer.preprocess_batch

        @wraps(preprocess)
        def keep(batch: Any) -> Any:
            batch = preprocess(batch)
            # Plots turn a batch into numpy arrays and scale its images, in place where they are on the CPU.
            self._batch = {
                key: item.clone() if isinstance(item, Tensor) and item.device.type == "cpu" else item
                for key, item in batch.items()
            }
            return batch

        trainer.preprocess_batch = keep

    def on_pretrain_routine_end(self, trainer: Any) -> None:
        """Attach to the model, the optimizer and the average, which all exist now."""
        if self._keeps_size:
            LOGGER.info(f"trainonce: {KEEPS_SIZE}")
            return
        # What a run leaves behind in a notebook is then no riddle for the next one.
        follows_by_itself(trainer.ema.ema)
        if trainer.resume and self._saved is None:
            raise PrunerError(
                f"{quoted(trainer.args.model)} is from a run without trainonce and can't be resumed with it. "
                "Start a new one from its weights: leave out resume=True."
            )
        self._total_steps = self._request.options.get("total_steps") or count_steps(trainer)
        with without_features(trainer.model):
            trainer.pruner = pruner = self._request.attach(
                trainer.model,
                trainer.optimizer,
                example=image_for(trainer),
                total_steps=self._total_steps,
                state=None if self._saved is None else self._saved["pruner"],
            )
        self._was_small = pruner.shrunk
        self._follow(trainer)
        trainer.model.yaml = marked(trainer.model.yaml)
        optimizer = trainer.optimizer
        self._undo = [
            pruner.detach,
            optimizer.register_step_post_hook(self._note_step).remove,
            optimizer.register_state_dict_post_hook(
                lambda _, state: {**state, STATE: _state_of(pruner)}
            ).remove,
        ]
        if pruner.lessons is not None:
            self._lessons = YoloLessons(trainer.model, pruner)
            self._undo.append(self._lessons.end)

    def on_train_batch_end(self, trainer: Any) -> None:
        """Advance the pruner after each optimizer step; batches may be accumulated, steps skipped."""
        pruner: Pruner | None = trainer.pruner
        if pruner is None or not self._has_stepped or pruner.num_steps >= self._total_steps:
            return
        self._has_stepped = False
        self._follow(trainer)
        with without_features(trainer.model):
            if pruner.step(lambda: self._loss(trainer)):
                LOGGER.info(f"trainonce: {pruner!r}")

    def on_train_epoch_end(self, trainer: Any) -> None:
        """Have the small model for the last validation, and no larger one for the best so far."""
        pruner: Pruner | None = trainer.pruner
        if pruner is None:
            return
        if self._lessons is not None:
            # After a loss that was not finite, the average is a new copy of the model, hooks and all.
            self._lessons.leave(trainer.ema.ema)
        if trainer.epoch + 1 >= trainer.epochs:
            with without_features(trainer.model):
                pruner.finish()
            if not pruner.cuts:
                trainer.model.yaml = unmarked(trainer.model.yaml)
        elif trainer.stop and not pruner.shrunk:
            LOGGER.warning("trainonce: stopped before the model was cut. Resume this run to make it small.")
        if not self._was_small:
            trainer.best_fitness = None
            trainer.stopper.best_fitness, trainer.stopper.best_epoch = 0.0, trainer.epoch
        self._was_small = self._has_met_budget = pruner.shrunk

    def teardown(self, trainer: Any) -> None:
        """Let go of the model and the optimizer."""
        for undo in self._undo:
            undo()
        self._undo, self._batch, self._saved, self._average, self._lessons = [], {}, None, None, None

    def _built(self, trainer: Any, build_dense: Callable[[], Any], weights: Any) -> nn.Module:
        if not trainer.resume:
            # The budget is a share of the model that the first training began with.
            self._keeps_size = self._has_met_budget
            return super()._built(trainer, build_dense, weights)
        _, checkpoint = load_checkpoint(trainer.args.model)
        self._saved = (checkpoint.get("optimizer") or {}).get(STATE)
        if self._saved is None:
            return super()._built(trainer, build_dense, weights)
        model = build_dense()
        restore(model, self._saved["pruner"])
        model.load_state_dict(self._saved["model"])
        return model

    def _follow(self, trainer: Any) -> None:
        """Have the average cut with the model; after a loss that was not finite, it is a new one."""
        if trainer.ema is not self._average:
            trainer.pruner.follow(trainer.ema)
            self._average = trainer.ema

    def _note_step(self, *_: Any) -> None:
        self._has_stepped = True

    def _loss(self, trainer: Any) -> Tensor:
        """The trainer's loss on the batch at hand, per image."""
        dtype = torch.bfloat16 if trainer.args.amp == "bf16" else None
        with torch.autocast(trainer.device.type, enabled=bool(trainer.amp), dtype=dtype):
            return trainer.model(self._batch)[0].sum() / len(self._batch["img"])


def _state_of(pruner: Pruner) -> dict[str, Any]:
    """What resumes a run. The weights are its own: Ultralytics saves their average, in half precision."""
    return {"pruner": pruner.state_dict(), "model": pruner.model.state_dict()}


def _owner_of(function: Any) -> object:
    return getattr(function, "__self__", None)
