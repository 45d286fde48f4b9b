"""A policy with one discrete gate per unit, learned by straight-through gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.pruning.policies.controller import Controller, FreeLogits
from trainonce.pruning.policies.policy import Evaluate, Policy, Search
from trainonce.pruning.policies.relative import relative

_TIE = 1e-6
"""The weight of filter norms in the scores: they only order gates that are equally open."""

_WAYS = 2.0
"""How often a gate could go all the way from open to closed in a run: Adam moves it by one rate each time."""


class DiscreteGates(Controller):
    """Learns one gate per unit by the straight-through estimator, without a network.

    Gao et al., "Discrete model compression with resource constraint for deep neural networks" (DMC), CVPR
    2020. A gate is open with the probability theta, and the gradient passes the draw as if it were not there:

        w ~ Bernoulli(theta),  d w / d theta = 1,  theta in [0, 1]

    This is their stochastic gate; all gates are open at first, and those with theta >= 1/2 stay.

    Different from the authors, who published no code: they learn the gates of a trained model whose weights
    are frozen, and fine-tune afterwards, while here weights go on training. The penalty on the cost is
    equation 6 of Auto-Train-Once, and filter norms order gates with the same theta.
    """

    def __init__(self, *, gamma: float = 4.0, learning_rate: float | None = None) -> None:
        """Discrete gates.

        Args:
            gamma: Weight of the budget penalty.
            learning_rate: Of the gates' Adam; None: a gate can close and open again in the run's updates.
        """
        super().__init__(FreeLogits, gamma=gamma, bias=1.0, learning_rate=learning_rate)

    def draw(self) -> Tensor:
        """Masks of 0 and 1, drawn with the probabilities of the gates, with the gradient of these."""
        theta = self._network() + self._bias
        is_open = torch.rand(theta.shape, generator=self._noise) < theta.detach()
        is_open = (is_open | self.search.required) & self.search.available
        learned = self.search.available & ~self.search.required
        return is_open.to(theta.dtype) + (theta - theta.detach()) * learned

    def update(self, evaluate: Evaluate) -> float | None:
        """One step of the gates' optimizer, which stay between closed and open."""
        loss = super().update(evaluate)
        with torch.no_grad():
            for shift in self._network.parameters():
                shift.clamp_(-self._bias, 1 - self._bias)
        return loss

    @torch.no_grad()
    def scores(self) -> Tensor:
        """How far a gate is on the open side of 1/2."""
        norms = self.search.per_unit(lambda rows, _: rows.square().sum(dim=1), only_matrices=True).sqrt()
        return (self._network() + self._bias - 0.5).double() + _TIE * relative(self.search, norms)

    def penalized(self) -> Tensor:
        """None: nothing is pulled while the gates learn."""
        return Policy.penalized(self)

    def _rate(self, search: Search) -> float:
        return _WAYS / max(1, search.num_updates)
