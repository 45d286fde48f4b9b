"""Nets that read sizes from a configuration, count elements, or drop channels by chance in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, image, image_net, token_net, tokens
from graphs.registry import Net, graph


@dataclass
class HeadsConfig:
    num_heads: int = 3
    head_dim: int = 4


class ConfiguredHeads(nn.Module):
    """Attention whose sizes are read from a configuration that it shares with other layers."""

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(12, 36)
        self.proj = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads, width = self.config.num_heads, self.config.head_dim
        q, k, v = (
            part.view(batch, length, heads, width).transpose(1, 2)
            for part in self.qkv(x).view(batch, length, 3, heads * width).unbind(2)
        )
        out = F.scaled_dot_product_attention(q, k, v, scale=0.5)
        return self.proj(out.transpose(1, 2).reshape(batch, length, heads * width))


@graph(expect_cut=True, reason="whole heads: each layer gets a configuration of its own")
def settings_config() -> Net:
    config = HeadsConfig()
    return token_net(ConfiguredHeads(config), ConfiguredHeads(config), width=12), tokens()


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        if x.numel() == 0:
            raise ValueError("nothing came in")
        return self.after(x)


@graph(expect_cut=True, reason="a count that is only compared comes out the same")
def settings_counted() -> Net:
    return Counted(), tokens()


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        return self.after(x * (1 / x.numel()))


@graph(expect_cut=False, reason="it computes with the number of elements")
def settings_weighted() -> Net:
    return Weighted(), tokens()


@graph(expect_cut=True, reason="all channels: a dropped one is silent for an example, not for good")
def settings_channel_dropout() -> Net:
    return image_net(
        nn.Dropout2d(0.3), ConvNormRelu(12, 10), nn.Dropout2d(0.3), width=12, out_width=10
    ), image()


@graph(expect_cut=True, reason="all channels; the reader's columns silence what alpha dropout puts there")
def settings_alpha_dropout() -> Net:
    return image_net(nn.FeatureAlphaDropout(0.3), width=12), image()


class DropPath(nn.Module):
    """Whole branches are left out for single examples."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        chances = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(0.8)
        return x * chances.div_(0.8)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(ConvNormRelu(12, 10), nn.Conv2d(10, 12, 1), DropPath())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


@graph(expect_cut=True, reason="the stream and what is inside the branch")
def settings_drop_path() -> Net:
    return image_net(Residual(), width=12), image()


class RandomMask(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.bernoulli(torch.full_like(x, 0.5)) if self.training else x


@graph(expect_cut=True, reason="the hidden layer: chances are aligned with the channels")
def settings_random_mask() -> Net:
    return token_net(RandomMask(), width=12), tokens()
