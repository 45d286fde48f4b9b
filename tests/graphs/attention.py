"""Nets whose pattern is self-attention with one fused projection."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import Mlp, token_net, tokens
from graphs.registry import Net, graph


class FusedByChunk(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(batch, length, self.num_heads, -1).transpose(1, 2)
        k = k.view(batch, length, self.num_heads, -1).transpose(1, 2)
        v = v.view(batch, length, self.num_heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        out = scores.softmax(dim=-1) @ v
        return self.proj(out.transpose(1, 2).reshape(batch, length, -1))


@graph(expect_cut=True, reason="whole heads, and the channels that enter and leave")
def attention_chunk() -> Net:
    return token_net(FusedByChunk(16, 4)), tokens()


class FusedByUnbind(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = width // num_heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


@graph(expect_cut=True, reason="whole heads, and the channels that enter and leave")
def attention_unbind() -> Net:
    return token_net(FusedByUnbind(16, 4)), tokens()


class FusedByPermute(nn.Module):
    """The output's width is taken from the input's (timm, DINO)."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = (width // num_heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = ((q @ k.transpose(-2, -1)) * self.scale).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, N, C))


@graph(expect_cut=True, reason="the hidden layer behind it; the heads' sizes hang on the input's width")
def attention_permute() -> Net:
    return token_net(FusedByPermute(16, 4), Mlp(16, 20)), tokens()


class PreNormBlock(nn.Module):
    def __init__(self, width: int, attention: nn.Module) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = attention
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


@graph(expect_cut=True, reason="heads and hidden layers; the norms keep the stream")
def attention_pre_norm_block() -> Net:
    return token_net(PreNormBlock(16, FusedByUnbind(16, 4)), PreNormBlock(16, FusedByChunk(16, 4))), tokens()


@graph(
    expect_cut=True, reason="hidden layers; the norm keeps the stream, from which the heads take their sizes"
)
def attention_pre_norm_permute() -> Net:
    return token_net(PreNormBlock(16, FusedByPermute(16, 4))), tokens()


class FusedBySplit(nn.Module):
    """Sizes of the three parts stored, values wider than keys."""

    def __init__(self, width: int, num_heads: int, key_dim: int, value_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.scale = key_dim**-0.5
        self.qkv = nn.Linear(width, num_heads * (2 * key_dim + value_dim))
        self.proj = nn.Linear(num_heads * value_dim, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, self.num_heads, -1)
        q, k, v = qkv.split([self.key_dim, self.key_dim, self.value_dim], dim=3)
        q, k, v = q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1), v.permute(0, 2, 1, 3)
        weights = (q @ k * self.scale).softmax(dim=-1)
        out = (weights @ v).transpose(1, 2).reshape(batch, length, self.num_heads * self.value_dim)
        return self.proj(out)


@graph(expect_cut=True, reason="whole heads, and the channels that enter and leave")
def attention_split_sizes() -> Net:
    return token_net(FusedBySplit(12, 4, 2, 4), width=12), tokens()


class FusedBySplitWidth(nn.Module):
    """Split by one stored width, GPT style."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.n_head = num_heads
        self.n_embd = width
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


@graph(expect_cut=True, reason="the hidden layer behind it; the heads' sizes hang on the stream's width")
def attention_causal_split() -> Net:
    return token_net(PreNormBlock(16, FusedBySplitWidth(16, 4))), tokens()


class FusedByEinsum(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = qkv.unbind(dim=2)
        scores = torch.einsum("bnhd,bmhd->bhnm", q, k) * 0.5
        return self.proj(torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), v).flatten(2))


@graph(expect_cut=True, reason="whole heads, and the channels that enter and leave")
def attention_einsum() -> Net:
    return token_net(FusedByEinsum(16, 4)), tokens()


class ParameterProjections(nn.Module):
    """Projections as bare parameters with an axis for the heads."""

    def __init__(self, width: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.w_q = nn.Parameter(torch.randn(num_heads, width, head_dim))
        self.w_k = nn.Parameter(torch.randn(num_heads, width, head_dim))
        self.w_v = nn.Parameter(torch.randn(num_heads, width, head_dim))
        self.w_o = nn.Parameter(torch.randn(num_heads, head_dim, width))

    def forward(self, x: Tensor) -> Tensor:
        q = torch.einsum("bnc,hcd->bhnd", x, self.w_q)
        k = torch.einsum("bnc,hcd->bhnd", x, self.w_k)
        v = torch.einsum("bnc,hcd->bhnd", x, self.w_v)
        weights = torch.softmax(torch.einsum("bhnd,bhmd->bhnm", q, k) * 0.7, dim=-1)
        return torch.einsum("bhnm,bhmd,hdc->bnc", weights, v, self.w_o)


@graph(expect_cut=True, reason="the head axis of four parameters, and the channels that enter and leave")
def attention_parameters() -> Net:
    return token_net(ParameterProjections(12, 3, 8), width=12), tokens()


class ImageAttention(nn.Module):
    """Heads on channels-first feature maps by 1x1 convolutions."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.proj = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, 3, self.num_heads, -1, height * width).unbind(1)
        weights = torch.softmax(q.transpose(-2, -1) @ k * 0.5, dim=-1)
        out = v @ weights.transpose(-2, -1)
        return self.proj(out.reshape(batch, -1, height, width))


@graph(expect_cut=True, reason="whole heads, and the channels that enter and leave")
def attention_image() -> Net:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), ImageAttention(16, 4), nn.Conv2d(16, 5, 1)
    )
    return model, torch.randn(2, 3, 6, 6)


class CrossCovariance(nn.Module):
    """Channels of a head attend to each other, over normalised tokens (XCiT)."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 4, 1)
        q, k, v = qkv.unbind(0)
        weights = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.temperature
        out = weights.softmax(dim=-1) @ v
        return self.proj(out.permute(0, 3, 1, 2).reshape(batch, length, -1))


@graph(expect_cut=True, reason="whole heads with their temperatures, and the channels that enter and leave")
def attention_cross_covariance() -> Net:
    return token_net(CrossCovariance(16, 4)), tokens()


class LinearAttention(nn.Module):
    """No softmax: keys and values are contracted first, the channels of a head are mixed."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        context = F.relu(k).transpose(-2, -1) @ v
        return self.proj((F.relu(q) @ context).transpose(1, 2).reshape(batch, length, -1))


@graph(expect_cut=True, reason="whole heads at least, and the channels that enter and leave")
def attention_linear() -> Net:
    return token_net(LinearAttention(16, 4)), tokens()
