"""The paper's controller: a network that learns which units to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.pruning.policies.policy import Evaluate, Policy, Search
from trainonce.storage.likeness import check_optimizer

PAPER_UPDATES = 2400
"""About as many updates as the paper's runs on CIFAR have: 120 epochs with 5 % of 391 batches."""


class RecurrentLogits(nn.Module):
    """The paper's controller network: one logit per unit, from one fixed random input per block.

    Orthogonal inputs (64) -> bidirectional GRU (128 each way) -> LayerNorm, ReLU -> one linear head per
    block.
    """

    inputs: Tensor

    def __init__(self, block_sizes: Sequence[int]) -> None:
        super().__init__()
        inputs = torch.empty(len(block_sizes), 64)
        # Rows are orthogonal up to 64 blocks; beyond that columns are.
        nn.init.orthogonal_(inputs)
        self.register_buffer("inputs", inputs)
        self.recurrent = nn.GRU(64, 128, bidirectional=True)
        self.norm = nn.LayerNorm(256)
        self.heads = nn.ModuleList(nn.Linear(256, size, bias=False) for size in block_sizes)

    def forward(self) -> Tensor:
        """The logits of all blocks, concatenated."""
        hidden, _ = self.recurrent(self.inputs[:, None])
        hidden = torch.relu(self.norm(hidden[:, 0]))
        return torch.cat([head(row) for head, row in zip(self.heads, hidden, strict=True)])


class FreeLogits(nn.Module):
    """One free logit per unit; units don't share anything."""

    def __init__(self, block_sizes: Sequence[int]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(sum(block_sizes)))

    def forward(self) -> Tensor:
        """The logits."""
        return self.logits


class Controller(Policy):
    """Learns masks by gradient descent on loss + gamma * budget penalty.

    Masks are Gumbel-sigmoid draws with straight-through rounding,

        w = round(sigmoid((o + s + b) / tau)),  s ~ Gumbel(0, 1)

    and one draw of w goes into both the gates and the cost.
    """

    uses_loss = True

    def __init__(
        self,
        network: type[RecurrentLogits] | type[FreeLogits] = RecurrentLogits,
        *,
        gamma: float = 4.0,
        bias: float = 3.0,
        temperature: float = 0.4,
        learning_rate: float | None = None,
    ) -> None:
        """The paper's controller.

        Args:
            network: The class of the network.
            gamma: Weight of the budget penalty.
            bias: Added to the logits, so that most units are kept at first.
            temperature: The tau of the Gumbel-sigmoid.
            learning_rate: Of the controller's Adam; None: 1e-3 as in the paper, more with fewer updates.
        """
        self._network_class = network
        self._gamma = gamma
        self._bias = bias
        self._temperature = temperature
        self._learning_rate = learning_rate

    def start(self, search: Search) -> None:
        """Build the network from the seed; the global random state is not touched."""
        super().start(search)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(search.seed)
            self._network = self._network_class([group.num_channels for group in search.units.groups])
        self._noise = torch.Generator().manual_seed(search.seed)
        rate = self._rate(search) if self._learning_rate is None else self._learning_rate
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=rate)

    def draw(self) -> Tensor:
        """Masks of 0 and 1 from one draw of noise, with the gradient of the soft masks."""
        logits = self._network()
        uniform = torch.rand(logits.shape, generator=self._noise).clamp(1e-9, 1 - 1e-7)
        gumbel = -(-uniform.log()).log()
        soft = torch.sigmoid((logits + gumbel + self._bias) / self._temperature) * self.search.available
        soft = torch.where(self.search.required, self.search.available.to(soft.dtype), soft)
        return soft + (soft.round() - soft).detach()

    def update(self, evaluate: Evaluate) -> float | None:
        """One step of the controller's optimizer; nothing changes if the loss is not finite."""
        with torch.enable_grad(), self._noise_put_back():
            masks = self.draw()
            loss, gradient = evaluate(masks.detach())
            penalty = self._gamma * self.search.budget.penalty(masks)
            total = float(loss) + float(penalty.detach())
            if not torch.isfinite(gradient).all() or not torch.isfinite(torch.tensor(total)):
                return None
            self._optimizer.zero_grad()
            # The gradient for the masks is known; its product with the masks passes it on to the network.
            ((masks * gradient).sum() + penalty).backward()
        self._optimizer.step()
        return total

    def _rate(self, search: Search) -> float:
        """The learning rate of a run of this length, if none was given."""
        return 1e-3 * min(10.0, max(1.0, PAPER_UPDATES / max(1, search.num_updates)))

    @contextmanager
    def _noise_put_back(self) -> Iterator[None]:
        """If the user's loss function raises, the next try draws the same noise."""
        before = self._noise.get_state()
        try:
            yield
        except BaseException:
            self._noise.set_state(before)
            raise

    @torch.no_grad()
    def scores(self) -> Tensor:
        """The logits without noise; a unit above zero is more likely kept than dropped."""
        return self._network() + self._bias

    def penalized(self) -> Tensor:
        """The units that the controller would drop now."""
        return (self.scores() < 0) | ~self.search.available

    def state_dict(self) -> dict[str, Any]:
        """The network, its optimizer and the state of the noise."""
        moments = {
            str(number): dict(state) for number, state in self._optimizer.state_dict()["state"].items()
        }
        return {
            "network": dict(self._network.state_dict()),
            "moments": moments,
            "noise": self._noise.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        moments = {int(number): moment for number, moment in state["moments"].items()}
        own = self._optimizer.state_dict()
        shapes = [tuple(parameter.shape) for parameter in self._network.parameters()]
        check_optimizer(own | {"state": moments}, self._optimizer, shapes, "moments")
        self._network.load_state_dict(dict(state["network"]))
        self._optimizer.load_state_dict({"state": moments, "param_groups": own["param_groups"]})
        self._noise.set_state(state["noise"])
