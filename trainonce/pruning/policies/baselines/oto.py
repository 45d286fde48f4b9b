"""The Only-Train-Once family: units are penalized during the search, all of them or a chosen set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.messages.limits import Limits, check_value
from trainonce.pruning.policies.norms import FilterNorm
from trainonce.pruning.policies.policy import Policy, Search
from trainonce.pruning.policies.relative import relative


class PenalizeAll(Policy):
    """OTO: penalizes all units alike and keeps those that remain largest.

    For its HSPG, pass `pull=HalfSpace()` and `strength=Strength(searching=1e-3, floor=0.0)`: gentle, because
    units that stay are pulled, too, and free to reach zero.

    Chen et al., "Only Train Once", NeurIPS 2021.
    """

    def scores(self) -> Tensor:
        """The norm over all weights of the unit, relative to its layer."""
        return relative(self.search, self.search.per_unit(lambda rows, _: rows.square().sum(dim=1)).sqrt())

    def penalized(self) -> Tensor:
        """All units."""
        return torch.ones(len(self.search.units), dtype=torch.bool)


class StaticSalience(Policy):
    """OTOv2: chooses the units to drop once, when the search begins, and penalizes only these.

    For its DHSPG, pass `pull=HalfSpace()` and `strength=Strength(floor=0.0)`.

    Chen et al., "OTOv2: automatic, generic, user-friendly", ICLR 2023.
    """

    def __init__(self, salience: Policy | None = None) -> None:
        self._salience = salience or FilterNorm(2)

    def start(self, search: Search) -> None:
        """Choose nothing yet: weights are noise at the start."""
        super().start(search)
        self._salience.start(search)
        self._chosen: Tensor | None = None
        self._dropped: Tensor | None = None

    def follow(self, search: Search) -> None:
        """Pass it on to the salience."""
        super().follow(search)
        self._salience.follow(search)
        self._dropped = None

    def observe(self) -> None:
        """Choose at the first step of the search."""
        self._salience.observe()
        if self._chosen is None:
            self._chosen = self._salience.scores().double()

    def scores(self) -> Tensor:
        """The salience at the time of the choice."""
        return self._salience.scores().double() if self._chosen is None else self._chosen

    def penalized(self) -> Tensor:
        """The units that don't fit the budget; none before the choice."""
        if self._chosen is None:
            return super().penalized()
        if self._dropped is None:
            self._dropped = self.search.budget.choose(self._chosen) == 0
        return self._dropped

    def state_dict(self) -> dict[str, Any]:
        """The choice, and the state of the salience."""
        return {"chosen": self._chosen, "salience": self._salience.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        self._chosen = None if state["chosen"] is None else state["chosen"].clone()
        self._salience.load_state_dict(state["salience"])


class Gradual(Policy):
    """HESSO-like: penalizes more and more units, the least salient first.

    A unit that was chosen once stays chosen.

    Chen et al., "HESSO: towards automatic efficient and user friendly any neural network training and
    pruning", 2024.
    """

    def __init__(self, salience: Policy | None = None, *, num_periods: int = 10) -> None:
        check_value("num_periods", num_periods, Limits(kind=int, at_least=1), "HESSO uses about 10.")
        self._salience = salience or FilterNorm(2)
        self._num_periods = num_periods

    def start(self, search: Search) -> None:
        """Choose nothing yet."""
        super().start(search)
        self._salience.start(search)
        self._dropped = torch.zeros(len(search.units), dtype=torch.bool)
        self._period = 0

    def follow(self, search: Search) -> None:
        """Pass it on to the salience."""
        super().follow(search)
        self._salience.follow(search)

    def observe(self) -> None:
        """At the start of each period, choose more units to go, in equal steps toward the budget."""
        self._salience.observe()
        period = min(self._num_periods, int(self.search.progress() * self._num_periods) + 1)
        if period > self._period:
            self._period = period
            share = 1 - (1 - self.search.budget.share) * period / self._num_periods
            self._dropped = self.search.budget.choose(self.scores(), share=share) == 0

    def scores(self) -> Tensor:
        """The salience, with chosen units below all others."""
        scores = self._salience.scores().double()
        return torch.where(self._dropped, scores - scores.max() - 1, scores)

    def penalized(self) -> Tensor:
        """The units chosen so far."""
        return self._dropped

    def state_dict(self) -> dict[str, Any]:
        """The choices so far."""
        return {"dropped": self._dropped, "period": self._period, "salience": self._salience.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        self._dropped = state["dropped"].clone()
        self._period = int(state["period"])
        self._salience.load_state_dict(state["salience"])
