"""What can be varied about trainonce in a training, as plain data whose text tells results apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import trainonce
from benchmarks.harness.recipe import Recipe
from trainonce.pruning.policies import AnchoredController, Policy, Search
from trainonce.pruning.policies.policy import Evaluate
from trainonce.pruning.pulling.projection import Pull

_FAR_BELOW = 1e3
"""No noise and no update brings a logit back from there."""


class Make:
    """A policy, made anew for each run because policies remember; its text says how."""

    def __init__(self, kind: type, *arguments: Any, **settings: Any) -> None:
        self._kind, self._arguments, self._settings = kind, arguments, settings

    def __call__(self) -> Policy:
        settings = {name: _made(value) for name, value in self._settings.items()}
        return self._kind(*map(_made, self._arguments), **settings)

    def __repr__(self) -> str:
        words = [*map(_said, self._arguments), *(f"{name}={_said(v)}" for name, v in self._settings.items())]
        return f"{self._kind.__name__}({', '.join(words)})"

    def kinds(self) -> Iterator[type]:
        """All classes that are used."""
        yield self._kind
        for value in (*self._arguments, *self._settings.values()):
            if isinstance(value, Make):
                yield from value.kinds()
            elif isinstance(value, type):
                yield value


def _made(value: Any) -> Any:
    return value() if isinstance(value, Make) else value


def _said(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """`attach` with its defaults, but for what is said here."""

    policy: Make | None = None
    pull: Pull | None = None
    strength: trainonce.Strength | None = None
    schedule: trainonce.Schedule | None = None
    round_to: int | None = None
    recipe: Recipe | None = None
    """None: that of the configuration."""

    shrinks: bool = True


class NeverBack(AnchoredController):
    """The default controller without second thoughts: what was below the line at an update stays there."""

    def start(self, search: Search) -> None:
        """Nothing is gone yet."""
        super().start(search)
        self._gone = torch.zeros(len(search.units), dtype=torch.bool)

    def update(self, evaluate: Evaluate) -> float | None:
        """What is below the line after it is gone; asking for masks in between changes nothing."""
        loss = super().update(evaluate)
        self._gone = self.penalized()
        return loss

    def penalized(self) -> Tensor:
        """What is below the line now, and what has been."""
        return self._gone | super().penalized()

    def _expected(self) -> Tensor:
        return super()._expected() - _FAR_BELOW * self._gone

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"gone": self._gone}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._gone = state["gone"].clone()
