"""What surrounds a pattern.

Inputs, an ordinary beginning that writes channels and an ordinary end that reads them.

The ends are linear and see every position, so that a channel cut wrongly anywhere shows in the output.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvNormRelu(nn.Sequential):
    """The ordinary layer of a CNN."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, groups=groups, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class Mlp(nn.Sequential):
    """The ordinary feed-forward layer of a transformer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def image(channels: int = 3, size: int = 8) -> Tensor:
    """Two images."""
    return torch.randn(2, channels, size, size)


def tokens(length: int = 9, width: int = 6) -> Tensor:
    """Two sequences of vectors."""
    return torch.randn(2, length, width)


def words(length: int = 7, vocabulary: int = 11) -> Tensor:
    """Two sequences of word numbers."""
    return torch.randint(vocabulary, (2, length))


def image_net(*patterns: nn.Module, width: int = 16, out_width: int | None = None) -> nn.Module:
    """The patterns between a convolution that writes `width` channels and one that reads `out_width`."""
    return nn.Sequential(ConvNormRelu(3, width), *patterns, nn.Conv2d(out_width or width, 5, 3, padding=1))


def token_net(*patterns: nn.Module, width: int = 16, out_width: int | None = None) -> nn.Module:
    """The patterns between a linear layer that writes `width` channels and one that reads `out_width`."""
    return nn.Sequential(nn.Linear(6, width), *patterns, nn.Linear(out_width or width, 5))
