"""Hugging Face Accelerate: the two calls that a custom loop needs besides `attach`.

pruner = trainonce.attach(model, optimizer, ...)   # after accelerator.prepare
register(accelerator, model, pruner)               # save_state and load_state have the pruner in them
...
if accelerator.sync_gradients and pruner.step(loss):
    rewrap(accelerator, model)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainonce.errors import PrunerError
from trainonce.messages.plain_text import shown_path
from trainonce.pruning.pruner import Pruner
from trainonce.storage.checkpoint.folder import is_written, read_checkpoint, write_checkpoint

STATE_FOLDER = "trainonce"
"""Where a folder of `save_state` has the pruner's state."""


def rewrap(accelerator: Any, model: nn.Module) -> None:
    """Let a prepared model follow a cut; call it on all processes.

    DistributedDataParallel does not notice new shapes. It is made anew, and the old object becomes the new
    one: loops and the accelerator may hold it anywhere. Other models are left alone.

    Args:
        accelerator: The Accelerator that prepared the model.
        model: What `accelerator.prepare` returned.
    """
    if not isinstance(model, DistributedDataParallel):
        if any(isinstance(part, DistributedDataParallel) for part in model.modules()):
            raise PrunerError(
                "DistributedDataParallel inside torch.compile can't follow a cut. Train without "
                "Accelerate's dynamo_plugin, or in one process."
            )
        return
    inner = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    known = list(accelerator._models)
    wrapper = accelerator.prepare_model(inner)
    accelerator._models[:] = known
    state, mark = dict(vars(wrapper)), getattr(model, "_is_accelerate_prepared", False)
    vars(model).clear()
    vars(model).update(state, _is_accelerate_prepared=mark)


def register(accelerator: Any, model: nn.Module, pruner: Pruner) -> None:
    """Make the pruner a part of `save_state` and `load_state`.

    To resume, prepare and attach as in the first run, register, and call `accelerator.load_state(folder)`:
    the model is cut to the size it had before its weights are loaded.

    Args:
        accelerator: The Accelerator that prepared the model.
        model: What `accelerator.prepare` returned.
        pruner: What `attach` returned.
    """

    def save(models: list[nn.Module], weights: list[Any], folder: str) -> None:
        del models, weights
        if accelerator.is_main_process:
            write_checkpoint(Path(folder) / STATE_FOLDER, pruner.state_dict())

    def load(models: list[nn.Module], folder: str) -> None:
        del models
        place = Path(folder) / STATE_FOLDER
        if not is_written(place):
            raise PrunerError(
                f"{shown_path(Path(folder))} was saved without a pruner. Call register(accelerator, model, "
                "pruner) before save_state, too."
            )
        pruner.load_state_dict(read_checkpoint(place))
        rewrap(accelerator, model)

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
