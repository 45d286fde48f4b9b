"""Choosing how much of each layer stays by what it is good for.

At equal cost, what many layers read and what has many weights stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.pruning.policies.norms import FilterNorm
from trainonce.pruning.policies.policy import Policy, Search
from trainonce.structure.channels import ChannelGroup, Role
from trainonce.structure.cost import Meter

_GONE = -1e3
"""The score of what an earlier decision dropped."""


class Capacity(Policy):
    """Keeps of every layer a share that grows with its readers and its weights per cost.

    In each, the units another policy scores highest.

    What a mask changes now says which channels matter now; a layer that is trained on makes up for most of
    it, and then its weights count. Early layers of a CNN are used at many places: they cost much and hold few
    weights. A trunk, such as the stream of a residual net, is read by many layers; narrowing it narrows all
    of them. A unit at place k of n in its layer scores

        -log(k / n) + log(min(layers that read it, trunk)) + exponent * log(weights of the layer's units /
        their cost)

    so that all layers keep the same share where nothing else is told, and no layer loses its best units.
    """

    def __init__(self, within: Policy | None = None, *, trunk: float = 3.0, exponent: float = 0.0) -> None:
        """`within` orders the units of a layer, by default the norm of their filters; `trunk` 1.

        The same share of all.
        """
        self._within = within or FilterNorm(2)
        self._trunk = trunk
        self._exponent = exponent

    def start(self, search: Search) -> None:
        """Measure every layer once, on the whole model."""
        super().start(search)
        self._within.start(search)
        units, ones = search.units, torch.ones(len(search.units), dtype=torch.double, requires_grad=True)
        (costs,) = torch.autograd.grad(search.budget.cost(ones), ones)
        (weights,) = torch.autograd.grad(Meter.of(units.partition.tensor_sizes)(units.alive(ones)), ones)
        per_cost = (units.per_group(weights) / units.per_group(costs).clamp_min(1e-30)).clamp_min(1e-30).log()
        readers = torch.tensor([_num_readers(group) for group in units.groups], dtype=torch.double)
        self._wider = self._exponent * (per_cost - per_cost.mean()) + readers.clamp(1.0, self._trunk).log()

    def follow(self, search: Search) -> None:
        """What orders the units follows, too."""
        super().follow(search)
        self._within.follow(search)

    def observe(self) -> None:
        """What orders the units may look at gradients."""
        self._within.observe()

    def scores(self) -> Tensor:
        """By place in the layer and by layer."""
        units, available = self.search.units, self.search.available
        within = torch.where(available, self._within.scores().double(), -torch.inf)
        place = (units.rank_in_group(within) + 1).double()
        scores = self._wider[units.group_of] - (place / units.sizes[units.group_of]).log()
        return torch.where(available, scores, _GONE)

    def state_dict(self) -> dict[str, Any]:
        """What orders the units remembers."""
        return {"within": self._within.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self._within.load_state_dict(state["within"])


def _num_readers(group: ChannelGroup) -> int:
    return len({part.tensor for part in group.slices if part.role is Role.READER})
