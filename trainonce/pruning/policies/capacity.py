"""A policy that sets layer widths by capacity: by how many layers read them, and by weights per cost."""

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
"""The score of units that an earlier decision dropped."""


class Capacity(Policy):
    """Keeps a larger share of layers with more readers and more weights per cost.

    Within a layer, another policy ranks the units.

    Masking a channel shows how much it matters now, but training makes up for most of that, and then the
    number of weights counts. Early layers of a CNN cost much and hold few weights. A trunk, such as the
    stream of a residual net, is read by many layers, and narrowing it narrows all of them. The unit at rank k
    of n in its layer scores

        -log(k / n) + log(min(layers that read it, trunk)) + exponent * log(weights of the layer's units /
        their cost)

    so by default all layers keep the same share, and no layer loses its best units.
    """

    def __init__(self, within: Policy | None = None, *, trunk: float = 3.0, exponent: float = 0.0) -> None:
        """A policy for layer widths.

        Args:
            within: Ranks the units of a layer; default: by the norm of their filters.
            trunk: The most readers that count; 1 ignores readers.
            exponent: How much weights per cost count; 0 ignores them.
        """
        self._within = within or FilterNorm(2)
        self._trunk = trunk
        self._exponent = exponent

    def start(self, search: Search) -> None:
        """Measure all layers once, in the dense model."""
        super().start(search)
        self._within.start(search)
        units, ones = search.units, torch.ones(len(search.units), dtype=torch.double, requires_grad=True)
        (costs,) = torch.autograd.grad(search.budget.cost(ones), ones)
        (weights,) = torch.autograd.grad(Meter.of(units.partition.tensor_sizes)(units.alive(ones)), ones)
        per_cost = (units.per_group(weights) / units.per_group(costs).clamp_min(1e-30)).clamp_min(1e-30).log()
        readers = torch.tensor([_num_readers(group) for group in units.groups], dtype=torch.double)
        self._wider = self._exponent * (per_cost - per_cost.mean()) + readers.clamp(1.0, self._trunk).log()

    def follow(self, search: Search) -> None:
        """Pass it on to the policy within layers."""
        super().follow(search)
        self._within.follow(search)

    def observe(self) -> None:
        """Let the policy within layers see the gradients."""
        self._within.observe()

    def scores(self) -> Tensor:
        """By rank in the layer, and by layer."""
        units, available = self.search.units, self.search.available
        within = torch.where(available, self._within.scores().double(), -torch.inf)
        place = (units.rank_in_group(within) + 1).double()
        scores = self._wider[units.group_of] - (place / units.sizes[units.group_of]).log()
        return torch.where(available, scores, _GONE)

    def state_dict(self) -> dict[str, Any]:
        """The state of the policy within layers."""
        return {"within": self._within.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        self._within.load_state_dict(state["within"])


def _num_readers(group: ChannelGroup) -> int:
    return len({part.tensor for part in group.slices if part.role is Role.READER})
