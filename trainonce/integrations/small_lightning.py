"""What a checkpoint of Lightning has of a pruner: its state, and the sizes of the module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainonce.errors import PrunerError
from trainonce.integrations.lightning_steps import part_of
from trainonce.pruning.restoring import restore as restore_shapes

if TYPE_CHECKING:
    # At run time it may be missing, which the adapter says in its own words.
    from lightning.pytorch import LightningModule

KEY = "trainonce"
"""Where a checkpoint has the pruner's state."""


def restore(module: LightningModule, checkpoint: Mapping[str, Any]) -> None:
    """Cut a newly built LightningModule to the size it had in a checkpoint, before its weights are loaded.

    Call it in the module's own `on_load_checkpoint`, so that `load_from_checkpoint` works. A module that has
    that size already is left alone.

    Args:
        module: The LightningModule.
        checkpoint: What Lightning has read.
    """
    saved = saved_in(checkpoint)
    shapes = {name: tensor.shape for name, tensor in module.state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in checkpoint["state_dict"].items()}:
        restore_shapes(part_of(module, saved["module"]), saved["pruner"])


def saved_in(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pruner's state in a checkpoint, and the name of the part it is of; PrunerError if there is none."""
    saved = checkpoint.get(KEY)
    if saved is None:
        raise PrunerError(
            "this checkpoint was saved without TrainOnceCallback, so it has no pruner state. Load its "
            "weights into the module yourself, and fit without ckpt_path."
        )
    if not isinstance(saved, Mapping) or not saved.keys() >= {"module", "pruner"}:
        raise PrunerError(
            "this checkpoint is damaged: its pruner's state names no module. Take an earlier checkpoint."
        )
    return saved
