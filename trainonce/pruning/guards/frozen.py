"""Tracks which parameters the optimizer no longer trains, and why; these must not be pulled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor, nn

from trainonce.pruning.units import Units

PATIENCE = 10
"""Steps in a row without a gradient after which a parameter counts as frozen; layer drop takes fewer."""


class Frozen:
    """The frozen ones among the parameters that a run may pull.

    A pull follows an optimizer step, so what the step could not move is not pulled: a parameter with
    `requires_grad=False`, one that is in no parameter group anymore, one without a gradient while others have
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
        """Parameters that the last optimizer step did not train, with the reason."""
        return self._now

    @property
    def lasting(self) -> dict[str, str]:
        """The same, without those that had no gradient for only a few steps."""
        return {
            name: reason
            for name, reason in self._now.items()
            if self._idle_steps.get(name, PATIENCE) >= PATIENCE
        }

    def holding(self, units: Units, chosen: Tensor) -> dict[str, str]:
        """Those that write to any of the chosen units, one boolean each, with the reason."""
        return {
            name: reason
            for name, reason in self._now.items()
            if bool((units.written_by([name]) & chosen).any())
        }

    def held_groups(self, units: Units) -> dict[str, str]:
        """The groups that they write to, each with the reason."""
        return {
            units.groups[number].name: f"{name} is no longer trained ({reason})"
            for name, reason in self.lasting.items()
            for number in units.group_of[units.written_by([name])].unique().tolist()
        }

    def before_step(self) -> None:
        """Before the optimizer's step: some optimizers drop gradients once used."""
        self._had_gradient = self._with_gradient()

    def after_step(self) -> None:
        """After the optimizer's step: gradients that a closure computed inside it are there now."""
        held = {id(parameter) for group in self._optimizer.param_groups for parameter in group["params"]}
        moved = self._had_gradient | self._with_gradient()
        self._now = {}
        for name, tensor in self._tensors.items():
            if not tensor.requires_grad:
                self._now[name] = "requires_grad is False"
            elif id(tensor) not in held:
                self._now[name] = "it is in no parameter group of the optimizer anymore"
            elif moved and id(tensor) not in moved:
                # If nothing has a gradient, the optimizer may not need any: that says nothing.
                self._idle_steps[name] = self._idle_steps.get(name, 0) + 1
                self._now[name] = f"it got no gradient in the last {self._idle_steps[name]} steps"
                continue
            self._idle_steps.pop(name, None)

    def state_dict(self) -> dict[str, int]:
        """For parameters without a gradient, for how many steps that has been so."""
        return dict(self._idle_steps)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Resume from a state_dict."""
        self._idle_steps = {name: int(count) for name, count in state.items()}
        self._now = {}

    def _with_gradient(self) -> set[int]:
        """Of all parameters in the optimizer: if only a head has gradients, the layers before are frozen."""
        return {
            id(parameter)
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        }


def named_first(names: Collection[str]) -> str:
    """The first name, and how many more there are."""
    first, *others = sorted(names)
    return f"{first} and {len(others)} more" if others else first
