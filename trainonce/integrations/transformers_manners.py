"""What `Trainer` and its models do in ways that a pruned model can't bear, put right for a while."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from torch import nn
from transformers import EarlyStoppingCallback

from trainonce.errors import BudgetError


@contextmanager
def own_names(model: Any) -> Iterator[None]:
    """Inside, `save_pretrained` writes weights under the names that they have in the model.

    transformers 5 saves some models under their old names, and `Trainer` does not know these when it resumes.
    """
    save = getattr(model, "save_pretrained", None)
    if save is None or "save_original_format" not in inspect.signature(save).parameters:
        yield
        return

    @wraps(save)
    def plainly(*args: Any, **kwargs: Any) -> Any:
        return save(*args, **{"save_original_format": False, **kwargs})

    model.save_pretrained = plainly
    try:
        yield
    finally:
        del model.save_pretrained


@contextmanager
def own_weights_trained(model: nn.Module) -> Iterator[None]:
    """Inside, a budget that is out of reach because of adapters (LoRA) is refused with what works instead."""
    try:
        yield
    except BudgetError:
        if not hasattr(model, "peft_config") or all(part.requires_grad for part in model.parameters()):
            raise
        raise BudgetError(
            "this budget can't be reached: the adapters of peft (LoRA) leave the model's own weights frozen, "
            "and frozen weights can't be cut. Prune first, and add the adapters to the small model."
        ) from None


@contextmanager
def without_reentrance(model: nn.Module) -> Iterator[None]:
    """Inside, activations are recomputed in the way that works with `torch.autograd.grad`.

    The other way is what transformers 4 does by default. The numbers are the same.
    """
    found = [
        (part, recompute)
        for part in model.modules()
        if isinstance(recompute := vars(part).get("_gradient_checkpointing_func"), partial)
        and recompute.keywords.get("use_reentrant")
    ]
    for part, recompute in found:
        plain = partial(recompute.func, *recompute.args, **{**recompute.keywords, "use_reentrant": False})
        vars(part)["_gradient_checkpointing_func"] = plain
    try:
        yield
    finally:
        for part, recompute in found:
            vars(part)["_gradient_checkpointing_func"] = recompute


def hold_stopping(trainer: Any, *, until: bool) -> None:
    """Let nobody lose patience before the model is small: while it is pulled, its score may not improve."""
    for callback in trainer.callback_handler.callbacks:
        if not isinstance(callback, EarlyStoppingCallback):
            continue
        if not until:
            # Lower than what it counts until the next step.
            callback.early_stopping_patience_counter = -2 - callback.early_stopping_patience
        else:
            callback.early_stopping_patience_counter = max(0, callback.early_stopping_patience_counter)
