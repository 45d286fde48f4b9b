"""The default policy's controller: every draw of masks meets the budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.pruning.policies.controller import Controller, FreeLogits, RecurrentLogits
from trainonce.pruning.policies.policy import Evaluate, Policy, Search


class AnchoredController(Controller):
    """A controller whose every draw meets the budget, so its gradient only says which units are worth it.

    The paper's penalty is one-sided: once the cost is below the target nothing pulls it back, and short runs
    end far from it. Here, the threshold on the noisy logits is set where the cost meets the budget, and the
    part of the gradient that would only move the cost is removed:

        g <- g - c * <g, c> / <c, c>,  c = d cost / d logits

    Masks tell well which units of a layer matter, but less well how wide the layer should be: training makes
    up for narrow layers that hold few weights. So a layer's mean logit is scaled by `between_layers`.
    """

    def __init__(
        self,
        network: type[RecurrentLogits] | type[FreeLogits] = RecurrentLogits,
        *,
        prior: Policy | None = None,
        between_layers: float = 1.0,
        ramp: float = 0.5,
        temperature: float = 0.4,
        learning_rate: float = 1e-3,
    ) -> None:
        """An anchored controller.

        Args:
            network: The class of the network.
            prior: A policy whose scores are added to the logits.
            between_layers: 1: the network moves whole layers as freely as units; 0: the prior sets widths.
            ramp: The share of the search in which the budget falls from the whole model to the target.
            temperature: The tau of the Gumbel-sigmoid.
            learning_rate: Of the controller's Adam.
        """
        super().__init__(network, gamma=0.0, bias=0.0, temperature=temperature, learning_rate=learning_rate)
        self._ramp = ramp
        self._prior = prior
        self._between_layers = between_layers

    def start(self, search: Search) -> None:
        """Build the network, and start the prior."""
        super().start(search)
        if self._prior is not None:
            self._prior.start(search)

    def follow(self, search: Search) -> None:
        """Pass it on to the prior."""
        super().follow(search)
        if self._prior is not None:
            self._prior.follow(search)

    def observe(self) -> None:
        """Let the prior see the gradients."""
        if self._prior is not None:
            self._prior.observe()

    def state_dict(self) -> dict[str, Any]:
        """The state of the controller and its prior."""
        return super().state_dict() | {"prior": {} if self._prior is None else self._prior.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        super().load_state_dict(state)
        if self._prior is not None:
            self._prior.load_state_dict(state["prior"])

    def _logits(self) -> Tensor:
        """The network's logits, with layer means scaled by `between_layers`."""
        logits, units, left = self._network(), self.search.units, self.search.available.float()
        means = units.per_group(logits * left) / units.per_group(left).clamp_min(1)
        return logits - (1 - self._between_layers) * means[units.group_of]

    def _expected(self) -> Tensor:
        """The prior's scores, standardized: the noise has about the same scale."""
        if self._prior is None:
            return torch.zeros(len(self.search.units))
        scores, left = self._prior.scores().float(), self.search.available
        return (scores - scores[left].mean()) / scores[left].std().clamp_min(1e-12)

    @torch.no_grad()
    def scores(self) -> Tensor:
        """The logits without noise, plus the prior."""
        return self._logits() + self._expected()

    def share_now(self) -> float:
        """The share of the model that draws keep at this point of the search."""
        way = 1.0 if self._ramp <= 0 else min(1.0, self.search.progress() / self._ramp)
        return 1 - (1 - self.search.budget.share) * way

    def update(self, evaluate: Evaluate) -> float | None:
        """One step of the controller's optimizer; nothing changes if the loss is not finite."""
        budget = self.search.budget
        with torch.enable_grad(), self._noise_put_back():
            logits = self._logits() + self._expected()
            uniform = torch.rand(logits.shape, generator=self._noise).clamp(1e-9, 1 - 1e-7)
            noisy = logits - (-uniform.log()).log()
            line = budget.line(noisy, share=self.share_now())
            soft = torch.sigmoid((noisy - line) / self._temperature) * self.search.available
            soft = torch.where(self.search.required, self.search.available.to(soft.dtype), soft)
            masks = soft + (soft.round() - soft).detach()
            loss, gradient = evaluate(masks.detach())
            if not torch.isfinite(gradient).all() or not torch.isfinite(loss):
                return None
            (of_loss,) = torch.autograd.grad((masks * gradient).sum(), logits, retain_graph=True)
            (of_cost,) = torch.autograd.grad(budget.cost(masks) / budget.total, logits, retain_graph=True)
            along = of_loss - of_cost * (of_loss @ of_cost) / (of_cost @ of_cost).clamp_min(1e-30)
            self._optimizer.zero_grad()
            logits.backward(along)
        self._optimizer.step()
        return float(loss)

    def penalized(self) -> Tensor:
        """The units below the threshold that the budget sets now."""
        scores = self.scores()
        return (scores < self.search.budget.line(scores, share=self.share_now())) | ~self.search.available
