"""Checks that the attached optimizer really trains the model: its steps against the pruner's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import PrunerError
from trainonce.pruning.notices import Notices
from trainonce.pruning.optimizers import members_of
from trainonce.surgery.optimizer_state import foreign_state

MANY = 20
"""Steps in a row without an optimizer step that are worth a warning.

A GradScaler skips steps with infinite gradients: it starts at 2^16 and halves, so up to 17 in a row. Gradient
accumulation skips steps, too.
"""

NEVER = 100
"""Steps without any optimizer step after which none will come."""

STRANGE = 10
"""Weights that change this often in a row without the attached optimizer are trained by another one."""

EARLY_STEPS = (1, 2, 4, 8, 16)
"""After these steps the optimizer's state is checked: early, so that little is lost if it can't be cut."""


class StepWatch:
    """Watches an optimizer, and some of the weights that it should move."""

    def __init__(self, optimizer: torch.optim.Optimizer, tensors: Iterable[Tensor], notices: Notices) -> None:
        self._members = members_of(optimizer)
        self._kind = " and ".join(type(member).__name__ for member in self._members)
        self._hooks: list[Any] = []
        self._after: Callable[[], None] = lambda: None
        self._in_round: set[int] = set()
        # The smallest ones are enough to see whether anything trains the model.
        self._tensors = sorted(tensors, key=Tensor.numel)[:3]
        self._seen: list[Tensor] = []
        self._without = self._changes = 0
        self._has_stepped = False
        self._notices = notices
        self.num_steps = 0
        """How many steps the optimizer has made."""

    @property
    def is_missing(self) -> bool:
        """Whether the optimizer has not stepped in a long while."""
        return self._without > 1 and (self._without > MANY or self._changes > 0 or self.num_steps == 0)

    @property
    def complaint(self) -> str:
        """What is wrong if the optimizer is missing, and what to do."""
        if self._changes:
            what = f"the model's weights change, but not through the attached {self._kind}"
        else:
            what = (
                f"optimizer.step() of the attached {self._kind} was not called in the last {self._without} "
                "calls of pruner.step()"
            )
        return (
            f"{what}. Call pruner.step() once after each optimizer.step(); if you created a new optimizer, "
            "attach to that one."
        )

    @property
    def is_hooked(self) -> bool:
        """Whether the hooks are in place."""
        return bool(self._hooks)

    def hook(self, *, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call these functions around each step of the optimizer from now on.

        Several optimizers make one step together: `before` comes before the first of them, `after` after the
        last, or when one of them or the pruner goes on without the others.
        """
        self._after = after

        def starts(member: torch.optim.Optimizer) -> None:
            if id(member) in self._in_round:
                self._end_round()
            if not self._in_round:
                before()

        def stepped(member: torch.optim.Optimizer) -> None:
            self._in_round.add(id(member))
            if len(self._in_round) == len(self._members):
                self._end_round()

        for member in self._members:
            self._hooks += [
                member.register_step_pre_hook(lambda *_, member=member: starts(member)),
                member.register_step_post_hook(lambda *_, member=member: stepped(member)),
            ]

    def unhook(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def pruner_stepped(self) -> None:
        """The pruner is about to step: warn once if the optimizer didn't, raise when that is certain."""
        if self._in_round:
            self._end_round()
        if self._has_stepped:
            self._has_stepped, self._without, self._changes, self._seen = False, 0, 0, []
            return
        self._without += 1
        now = [tensor.detach().clone() for tensor in self._tensors]
        self._changes = self._changes + 1 if _differ(self._seen, now) else 0
        self._seen = now
        if self._changes >= STRANGE or (self.num_steps == 0 and self._without >= NEVER):
            raise PrunerError(self.complaint)
        if self._changes or self._without > MANY:
            self._notices.once("optimizer", self.complaint)

    def _end_round(self) -> None:
        self._in_round = set()
        self._has_stepped = True
        self.num_steps += 1
        for member in self._members if self.num_steps in EARLY_STEPS else ():
            if foreign := foreign_state(member):
                raise PrunerError(foreign)
        self._after()


def _differ(before: list[Tensor], now: list[Tensor]) -> bool:
    """Whether any weight has changed; shapes that a cut changed don't count."""
    return any(
        left.shape == right.shape and not torch.equal(left.nan_to_num(), right.nan_to_num())
        for left, right in zip(before, now, strict=False)
    )
