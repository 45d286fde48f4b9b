"""Nets whose stream runs through norms that a cut must not upset: buffers, mean squares, responses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import Mlp, image, image_net, token_net, tokens
from graphs.normalisation import FrozenNorm
from graphs.registry import Net, graph


class FrozenResidual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(width, 10, 3, padding=1, bias=False),
            FrozenNorm(10),
            nn.ReLU(),
            nn.Conv2d(10, width, 3, padding=1, bias=False),
            FrozenNorm(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.branch(x))


@graph(expect_cut=True, reason="the stream and the branch: what the shift leaves is silenced by its readers")
def norm_frozen() -> Net:
    return image_net(FrozenNorm(12), FrozenResidual(12), FrozenResidual(12), width=12), image()


class FixedScale(nn.Module):
    """A table for tokens and channels, computed from buffers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", 100.0 ** -torch.linspace(0, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
        return x + (places[:, None] * self.frequencies).cos()


@graph(expect_cut=True, reason="the hidden layer: the table loses the same channels")
def norm_table_of_places() -> Net:
    return token_net(FixedScale(12), Mlp(12, 20), width=12), tokens()


class RootMeanSquare(nn.Module):
    """RMSNorm as language models spell it; `offset` is 1 where the weight is a difference to 1."""

    def __init__(self, width: int, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width) + 1 - offset)
        self.variance_epsilon = 1e-2
        self.is_shifted = bool(offset)

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (1 + self.weight) * x if self.is_shifted else self.weight * x


class PreNorm(nn.Module):
    """A stream that every layer reads through a norm and adds to."""

    def __init__(self, width: int, norm: nn.Module, hidden: int = 20) -> None:
        super().__init__()
        self.norm = norm
        self.mlp = Mlp(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


@graph(expect_cut=True, reason="the stream, with the norms scaled, and the hidden layers")
def norm_stream() -> Net:
    norms = [RootMeanSquare(12), RootMeanSquare(12, 1.0), nn.RMSNorm(12, eps=1e-2)]
    return token_net(*(PreNorm(12, norm) for norm in norms), nn.RMSNorm(12), width=12), tokens()


class GlobalResponse(nn.Module):
    """Global response norm over channels-last features, with an eps that it remembers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.eps = 1e-2
        self.weight = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        power = x.norm(p=2, dim=(1, 2), keepdim=True)
        share = power / (power.mean(dim=-1, keepdim=True) + self.eps)
        return x + torch.addcmul(self.bias, self.weight, x * share)


class ResponseBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 20)
        self.norm = GlobalResponse(20)
        self.outer = nn.Linear(20, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.outer(self.norm(F.relu(self.inner(x.permute(0, 2, 3, 1)))))
        return x + y.permute(0, 3, 1, 2)


@graph(expect_cut=True, reason="the hidden layer under the response norm, and the stream")
def norm_response_hidden() -> Net:
    return image_net(ResponseBlock(12), width=12), image()
