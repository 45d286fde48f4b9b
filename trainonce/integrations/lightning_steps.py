"""A LightningModule's training step, with or without a teacher, and its parts by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.integrations.teaching import answers_of, taught
from trainonce.messages.plain_text import quoted
from trainonce.pruning.pruner import Pruner

if TYPE_CHECKING:
    # At run time it may be missing, which the adapter says in its own words.
    from lightning.pytorch import LightningModule


def taught_step(step: Callable[..., Any], pruner_now: Callable[[], Pruner | None]) -> Callable[..., Any]:
    """A `training_step` whose loss has the teacher's part, once there is a pruner with a teacher."""

    @wraps(step)
    def make_step(*args: Any, **kwargs: Any) -> Any:
        pruner = pruner_now()
        if pruner is None or pruner.lessons is None:
            return step(*args, **kwargs)
        with answers_of(pruner.model) as answers:
            output = step(*args, **kwargs)
        if isinstance(output, Mapping):
            return {**output, "loss": taught(pruner, output["loss"], answers)}
        # None skips the batch.
        return taught(pruner, output, answers) if isinstance(output, Tensor) else output

    return make_step


def training_step(pl_module: LightningModule, batch: Any, batch_idx: int) -> Any:
    """What the module's own `training_step` returns; it may do without the index."""
    parameters = inspect.signature(pl_module.training_step).parameters
    return (
        pl_module.training_step(batch, batch_idx) if len(parameters) > 1 else pl_module.training_step(batch)
    )


def part_of(pl_module: nn.Module, name: str) -> nn.Module:
    """The part of this name; PrunerError if there is none."""
    try:
        return pl_module.get_submodule(name)
    except AttributeError:
        raise PrunerError(
            f"{type(pl_module).__name__} has no part {quoted(name)}. Use a name of named_modules()."
        ) from None


def name_in(pl_module: nn.Module, part: nn.Module) -> str:
    """The name of a part."""
    return next(name for name, module in pl_module.named_modules() if module is part)
