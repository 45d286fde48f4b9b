"""Restoring a trainer from the newest valid checkpoint, the same on all processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from trainonce.errors import CheckpointError
from trainonce.messages.plain_text import shown_path
from trainonce.storage.checkpoint import find_newest
from trainonce.storage.checkpoint.folder import read_checkpoint
from trainonce.storage.checkpoint.rotation import checkpoint_path
from trainonce.training.loop.processes import Processes
from trainonce.training.loop.trainer import Trainer
from trainonce.training.resuming.saved_state import bounds_of, check_saved

_NOTHING, _REFUSED = -1, -2


def restore_trainer(
    root: Path, trainer: Trainer, processes: Processes, *, warn: Callable[[str], None], is_new: bool
) -> dict[str, Any] | None:
    """Restore the newest valid checkpoint in `root` and return its state; None if there is none."""
    found, refusal, bounds = None, None, bounds_of(trainer)
    if processes.is_first:
        try:
            found = find_newest(root, check=partial(check_saved, trainer=trainer), bounds=bounds)
        except CheckpointError as error:
            refusal = error
        if found is not None and found.refused:
            warn(
                f"using the checkpoint of step {found.step}, because a newer one is invalid: "
                f"{found.refused[0]}"
            )
        elif found is None and refusal is None and not is_new:
            warn(f"{shown_path(root.parent)} has a run without a checkpoint: starting again at step 0")
    step = processes.from_first(
        _REFUSED if refusal is not None else _NOTHING if found is None else found.step
    )
    if step == _REFUSED:
        raise refusal or CheckpointError("rank 0 found no valid checkpoint; see its message.")
    if step == _NOTHING:
        return None
    state = found.state if found is not None else read_checkpoint(checkpoint_path(root, step), bounds=bounds)
    trainer.load_state_dict(state["trainer"])
    return state
