"""Nets that route tokens to experts with stacked weights: in batches, or one expert after another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import token_net, tokens
from graphs.registry import Net, graph


class Experts(nn.Module):
    """A gated layer per expert; each token goes to the two that score highest."""

    def __init__(self, width: int, hidden: int, count: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, 2 * hidden, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, width, hidden) / hidden**0.5)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weight and the number of each token's experts."""
        return self.router(x).softmax(-1).topk(2, dim=-1)


class BatchedExperts(Experts):
    """Every token is multiplied with a copy of its expert's weights."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weights, numbers = self.route(flat)
        rows = flat.repeat_interleave(2, dim=0)
        picked = numbers.flatten()
        gate, value = torch.bmm(self.up[picked], rows.unsqueeze(-1)).squeeze(-1).chunk(2, dim=-1)
        found = torch.bmm(self.down[picked], (F.silu(gate) * value).unsqueeze(-1)).squeeze(-1)
        found = found * weights.flatten().unsqueeze(-1)
        return x + found.view(flat.shape[0], 2, -1).sum(1).view(x.shape)


@graph(expect_cut=True, reason="the hidden units, the same ones of all experts")
def experts_batched() -> Net:
    return token_net(BatchedExperts(12, 20), width=12), tokens()


class LoopedExperts(Experts):
    """One expert after another, each on the tokens that chose it."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weights, numbers = self.route(flat)
        found = torch.zeros_like(flat)
        for number in range(len(self.up)):
            token, place = torch.where(numbers == number)
            gate, value = F.linear(flat[token], self.up[number]).chunk(2, dim=-1)
            answer = F.linear(F.silu(gate) * value, self.down[number])
            found.index_add_(0, token, answer * weights[token, place, None])
        return x + found.view(x.shape)


@graph(expect_cut=True, reason="the hidden units, the same ones of all experts", on_meta=False)
def experts_looped() -> Net:
    return token_net(LoopedExperts(12, 20), width=12), tokens()
