"""Whether the attached optimizer really trains the model.

Takes its steps and the pruner's, says when they don't go together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import PrunerError
from trainonce.surgery.optimizer_state import foreign_state

# A GradScaler calls the optimizer only if all gradients are finite. It starts at 2^16 and halves, so about 17
# steps may be skipped in a
# row before its scale is 1; accumulated gradients leave steps out, too. More than that is worth a word, but
# the run may still be sound.
MANY = 20
NEVER = 100
"""Without a single optimizer step in so many of the pruner's, none will come."""

STRANGE = 10
"""Weights that change so often in a row without a step of the attached optimizer are trained by another one."""

EARLY_STEPS = (1, 2, 4, 8, 16)
"""After these the optimizer's state is looked at: little is lost then if a cut can't follow into it.

What comes later, the cut refuses.
"""


class StepWatch:
    """Bound to an optimizer and to some of the weights that it should move."""

    def __init__(self, optimizer: torch.optim.Optimizer, tensors: Iterable[Tensor]) -> None:
        self._optimizer = optimizer
        self._kind = type(optimizer).__name__
        self._hooks: list[Any] = []
        # The smallest are enough to tell that something trains the model.
        self._tensors = sorted(tensors, key=Tensor.numel)[:3]
        self._seen: list[Tensor] = []
        self._without = self._changes = 0
        self._has_stepped = self._warned = False
        self.num_steps = 0
        """The optimizer's steps so far."""

    @property
    def is_missing(self) -> bool:
        """Whether the optimizer made no step in a long while."""
        return self._without > 1 and (self._without > MANY or self._changes > 0 or self.num_steps == 0)

    @property
    def complaint(self) -> str:
        """What is wrong if the optimizer is missing, and what to do."""
        if self._changes:
            what = f"the model's weights change, but not by the {self._kind} that was attached"
        else:
            what = (
                f"optimizer.step() of the attached {self._kind} was not called in the last {self._without} "
                "calls of pruner.step()"
            )
        return (
            f"{what}. Call pruner.step() once after each optimizer.step(); if you made a new optimizer, "
            "attach to that."
        )

    @property
    def is_hooked(self) -> bool:
        """Whether the optimizer's steps are seen."""
        return bool(self._hooks)

    def hook(self, *, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call these around each step of the optimizer from now on."""

        def stepped(*_: Any) -> None:
            self._optimizer_stepped()
            after()

        self._hooks = [
            self._optimizer.register_step_pre_hook(lambda *_: before()),
            self._optimizer.register_step_post_hook(stepped),
        ]

    def unhook(self) -> None:
        """See the optimizer's steps no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def pruner_stepped(self) -> None:
        """The pruner is about to make a step.

        Warn once if the optimizer made none, raise once that is certain.
        """
        if self._has_stepped:
            self._has_stepped, self._without, self._changes, self._seen = False, 0, 0, []
            return
        self._without += 1
        now = [tensor.detach().clone() for tensor in self._tensors]
        self._changes = self._changes + 1 if _differ(self._seen, now) else 0
        self._seen = now
        if self._changes >= STRANGE or (self.num_steps == 0 and self._without >= NEVER):
            raise PrunerError(self.complaint)
        if not self._warned and (self._changes or self._without > MANY):
            self._warned = True
            warnings.warn(self.complaint, RuntimeWarning, stacklevel=3)

    def _optimizer_stepped(self) -> None:
        self._has_stepped = True
        self.num_steps += 1
        if self.num_steps in EARLY_STEPS and (foreign := foreign_state(self._optimizer)):
            raise PrunerError(foreign)


def _differ(before: list[Tensor], now: list[Tensor]) -> bool:
    """Whether any weight is another one; a cut changes shapes, which says nothing."""
    return any(
        left.shape == right.shape and not torch.equal(left.nan_to_num(), right.nan_to_num())
        for left, right in zip(before, now, strict=False)
    )
