"""What the settings of an Ultralytics trainer mean for a pruner: its steps, its example, what is refused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainonce.errors import PrunerError
from trainonce.messages.plain_text import shown


def count_steps(trainer: Any) -> int:
    """How many optimizer steps a trainer will make: fewer batches are accumulated while it warms up."""
    num_batches = len(trainer.train_loader)
    warm_up = _count_warm_up(trainer, num_batches)
    num_steps, last = 0, -1
    for number in range(num_batches * trainer.epochs):
        share = min(1.0, number / warm_up) if warm_up else 1.0
        if number - last >= max(1, round(1 + share * (trainer.accumulate - 1))):
            num_steps, last = num_steps + 1, number
    return num_steps


def _count_warm_up(trainer: Any, num_batches: int) -> int:
    """How many batches the warm-up takes; earlier versions of 8.4 made it at least a hundred."""
    if hasattr(trainer, "_get_warmup_iterations"):
        return trainer._get_warmup_iterations(num_batches)
    share = trainer.args.warmup_epochs
    return max(round(share * num_batches), 100) if share > 0 else 0


def check_arguments(trainer: Any) -> None:
    """Raise PrunerError for settings of a trainer that pruning can't live with."""
    reasons = {
        "time": "the number of steps must be known: set epochs instead",
        "compile": "a compiled model would have to be compiled again after each cut",
        "distill_model": "the trained model is a part of another one",
    }
    for name, reason in reasons.items():
        if value := getattr(trainer.args, name, None):
            raise PrunerError(f"{name}={shown(value)} can't be used with trainonce: {reason}. Leave it out.")
    if getattr(trainer.args, "quantize", None) == 8:
        raise PrunerError("quantize=8 can't be used with trainonce. Train first, then quantize the result.")


def image_for(trainer: Any) -> Tensor:
    """An image of the size that is trained on."""
    shape = 1, trainer.data.get("channels", 3), trainer.args.imgsz, trainer.args.imgsz
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(trainer.device)
