"""Which parameters the optimizer no longer trains.

Takes every optimizer step, names those that must not be pulled, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import nn

PATIENCE = 10
"""Steps in a row without a gradient after which a parameter counts as frozen.

A layer that is dropped at random is back before.
"""


class Frozen:
    """Bound to the parameters that a run may pull, and to their optimizer.

    A pull follows an optimizer step, so what the step could not move is not pulled after it: a parameter with
    `requires_grad` off, one that is in no parameter group any more, one without a gradient while others have
    one.
    """

    def __init__(
        self, tensors: Mapping[str, nn.Parameter], writers: Iterable[str], optimizer: torch.optim.Optimizer
    ) -> None:
        self._tensors = {name: tensors[name] for name in sorted(set(writers))}
        self._optimizer = optimizer
        self._had_gradient: set[int] = set()
        self._now: dict[str, str] = {}
        self._idle_steps: dict[str, int] = {}

    @property
    def now(self) -> Mapping[str, str]:
        """What the last optimizer step did not train, each with the reason."""
        return self._now

    @property
    def lasting(self) -> dict[str, str]:
        """The same without those that only had no gradient for a few steps."""
        return {
            name: reason
            for name, reason in self._now.items()
            if self._idle_steps.get(name, PATIENCE) >= PATIENCE
        }

    def before_step(self) -> None:
        """Before the optimizer's step: some optimizers drop gradients when they have used them."""
        self._had_gradient = self._with_gradient()

    def after_step(self) -> None:
        """After the optimizer's step; gradients that a closure made in it are there now."""
        held = {id(parameter) for group in self._optimizer.param_groups for parameter in group["params"]}
        moved = self._had_gradient | self._with_gradient()
        self._now = {}
        for name, tensor in self._tensors.items():
            if not tensor.requires_grad:
                self._now[name] = "requires_grad is False"
            elif id(tensor) not in held:
                self._now[name] = "it is in no parameter group of the optimizer any more"
            elif moved and id(tensor) not in moved:
                # Where nothing has a gradient, as with optimizers that need none, it says nothing about any
                # one.
                self._idle_steps[name] = self._idle_steps.get(name, 0) + 1
                self._now[name] = f"it got no gradient in the last {self._idle_steps[name]} steps"
                continue
            self._idle_steps.pop(name, None)

    def state_dict(self) -> dict[str, int]:
        """For how many steps parameters have had no gradient; those that have one are left out."""
        return dict(self._idle_steps)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Put back what `state_dict` gave."""
        self._idle_steps = {name: int(count) for name, count in state.items()}
        self._now = {}

    def _with_gradient(self) -> set[int]:
        """All that the optimizer trains counts.

        Where only a head has gradients, what is before it is frozen.
        """
        return {
            id(parameter)
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        }


def named_first(names: Collection[str]) -> str:
    """The first of some names, and how many more there are."""
    first, *others = sorted(names)
    return f"{first} and {len(others)} more" if others else first
