"""A policy that repeatedly zeroes the smallest filters and lets them grow back in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.messages.limits import Limits, check_value
from trainonce.pruning.policies.policy import Policy, Search


class SoftFilter(Policy):
    """Zeroes the filters with the smallest norm at the start of each round; training may bring them back.

    He et al., "Soft filter pruning for accelerating deep convolutional neural networks" (SFP), IJCAI 2018.
    After each epoch, the same share of every layer is set to zero; norms and momentum stay as they are, so
    the filters are free to come back. The decision drops those that are smallest then.

    Different from the authors' code: a round takes an epoch's place, because a training loop may have none
    (for their rule, pass the number of epochs between search_from and settle_from); units that several layers
    write (the stream of a residual net) are zeroed as well, in all of these layers at once; and the model is
    cut after the search instead of at the end.
    """

    def __init__(self, *, num_rounds: int = 20) -> None:
        check_value("num_rounds", num_rounds, Limits(kind=int, at_least=1), "SFP has one round per epoch.")
        self._num_rounds = num_rounds

    def start(self, search: Search) -> None:
        """Zero nothing yet."""
        super().start(search)
        self._round = 0

    def observe(self) -> None:
        """At the start of each round, zero the filters that don't fit the budget."""
        number = min(self._num_rounds, int(self.search.progress() * self._num_rounds) + 1)
        if number > self._round:
            self._round = number
            self._zero(self.search.budget.choose(self.scores()) == 0)

    def scores(self) -> Tensor:
        """The rank of the filter's L2 norm in its group, as a share of the group: layers are cut alike."""
        norms = self.search.per_unit(lambda rows, _: rows.square().sum(dim=1), only_matrices=True).sqrt()
        units = self.search.units
        return (units.rank_in_group(-norms) + 1).double() / units.sizes[units.group_of]

    def state_dict(self) -> dict[str, Any]:
        """The round."""
        return {"round": self._round}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        self._round = int(state["round"])

    @torch.no_grad()
    def _zero(self, dropped: Tensor) -> None:
        """Zero kernels and matrices only: with a norm's scale at zero, no gradient would reach the filter."""
        for rows in self.search.units.writers:
            parameter = self.search.tensors[rows.tensor]
            if parameter.dim() > 1 and parameter.requires_grad:
                chosen = rows.where(dropped[rows.units]).to(parameter.device)
                parameter.detach().index_fill_(rows.axis, chosen.positions, 0)
