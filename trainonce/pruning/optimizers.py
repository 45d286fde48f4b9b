"""Several optimizers that train one model together, such as Muon beside AdamW, seen as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor


class JointOptimizer:
    """The groups and the state of several optimizers with different parameters."""

    def __init__(self, members: Sequence[torch.optim.Optimizer]) -> None:
        self.members = tuple(members)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all members, in their order."""
        return [group for member in self.members for group in member.param_groups]

    @property
    def state(self) -> Mapping[Tensor, dict[str, Any]]:
        """What the members keep of each parameter; the values are their own."""
        return _JointState(self.members)

    @property
    def found_inf(self) -> bool:
        """Whether a GradScaler has made all members skip their last step."""
        return all(bool(getattr(member, "found_inf", False)) for member in self.members)


class _JointState(Mapping[Tensor, dict[str, Any]]):
    def __init__(self, members: Sequence[torch.optim.Optimizer]) -> None:
        self._members = members

    def __getitem__(self, parameter: Tensor) -> dict[str, Any]:
        for member in self._members:
            # Not member.state[...]: it is a defaultdict.
            if parameter in member.state:
                return member.state[parameter]
        raise KeyError(parameter)

    def __iter__(self) -> Iterator[Tensor]:
        return (parameter for member in self._members for parameter in member.state)

    def __len__(self) -> int:
        return sum(len(member.state) for member in self._members)


def as_one(optimizers: Sequence[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """The optimizer itself if it is the only one, else all of them as one to read from."""
    # Whoever gets it reads groups and state; steps and hooks are those of the members.
    return optimizers[0] if len(optimizers) == 1 else cast(torch.optim.Optimizer, JointOptimizer(optimizers))


def members_of(optimizer: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    """The optimizers that `as_one` was given."""
    return optimizer.members if isinstance(optimizer, JointOptimizer) else (optimizer,)
