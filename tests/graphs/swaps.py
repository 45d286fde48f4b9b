"""Nets whose modules compute in another way once they are cut: torch's attention and LayerNorms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphs.necks import Mlp, image, image_net, token_net, tokens
from graphs.registry import Net, graph
from graphs.streams import PreNorm


class SelfAttention(nn.Module):
    """torch's attention around a stream, with what its constructor and its call take."""

    def __init__(self, width: int, heads: int, *, called: dict[str, Any] | None = None, **made: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, **made)
        self.called = called or {}

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, **self.called)[0]


class CrossAttention(nn.Module):
    """Keys and values of other widths than the queries, and a mask for each."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(6, 10)
        self.values = nn.Linear(6, 14)
        self.attention = nn.MultiheadAttention(12, 3, kdim=10, vdim=14, bias=False, batch_first=True)
        self.head = nn.Linear(12, 5)
        self.start = nn.Linear(6, 12)

    def forward(self, x: Tensor) -> Tensor:
        query, length = self.start(x[:, :4]), x.shape[1]
        gone = torch.zeros(x.shape[:2], dtype=x.dtype, device=x.device)
        gone[0, -2:] = -1e4
        order = torch.ones(4, length, dtype=x.dtype, device=x.device).triu(6) * -3
        found = self.attention(query, self.keys(x), self.values(x), key_padding_mask=gone, attn_mask=order)
        return self.head(query + found[0])


@graph(expect_cut=True, reason="whole heads")
def swap_attention() -> Net:
    return token_net(SelfAttention(16, 4, batch_first=True), SelfAttention(16, 4)), tokens()


@graph(expect_cut=True, reason="whole heads, and the channels of keys and values")
def swap_attention_cross() -> Net:
    return CrossAttention(), tokens()


@graph(expect_cut=True, reason="whole heads, with a learned key and one of zeros beside the others")
def swap_attention_more_keys() -> Net:
    made = {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True}
    return token_net(SelfAttention(16, 4, **made, called={"need_weights": False})), tokens()


class WeightsToo(nn.Module):
    """What a model does with attention's weights decides whether heads can go."""

    def __init__(self, *, average: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.mix = nn.Linear(9, 9)
        self.average = average

    def forward(self, x: Tensor) -> Tensor:
        found, weights = self.attention(x, x, x, average_attn_weights=self.average)
        return found + (self.mix(weights).mean(1) if not self.average else weights) @ x


@graph(expect_cut=True, reason="the stream at least: the mean of the weights is over all heads")
def swap_attention_averaged() -> Net:
    return token_net(WeightsToo(average=True), width=12), tokens()


@graph(expect_cut=True, reason="the stream at least: another mean is over all heads")
def swap_attention_weights() -> Net:
    return token_net(WeightsToo(average=False), width=12), tokens()


@graph(
    expect_cut=True, reason="heads, hidden layers and, with a divisor that stays, the stream", streams=True
)
def swap_norm_encoder() -> Net:
    layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=24, dropout=0.0, batch_first=True)
    layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    return token_net(layers), tokens()


@graph(expect_cut=True, reason="the stream under norms with and without a bias", streams=True)
def swap_norm_stream() -> Net:
    norms = [nn.LayerNorm(12), nn.LayerNorm(12, bias=False, eps=1e-2)]
    return token_net(*(PreNorm(12, norm) for norm in norms), nn.LayerNorm(12), width=12), tokens()


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the second axis, as ConvNeXt has it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = LayerNorm2d(width)
        self.mlp = nn.Sequential(nn.Conv2d(width, 20, 1), nn.GELU(), nn.Conv2d(20, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(self.depthwise(x)))


@graph(expect_cut=True, reason="the stream under norms with channels first", streams=True)
def swap_norm_images() -> Net:
    return image_net(ConvBlock(12), LayerNorm2d(12), ConvBlock(12), width=12), image()


class Shifted(nn.Module):
    """A norm of what is never zero, and one that has no weight."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.bare = nn.LayerNorm(12, elementwise_affine=False)
        self.mlp = Mlp(12, 20)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(x.sigmoid()) + self.bare(x))


@graph(
    expect_cut=True, reason="the hidden layer: neither norm sees zeros when channels are gone", streams=True
)
def swap_norm_not_silent() -> Net:
    return token_net(Shifted(), width=12), tokens()


class RotatedHeads(nn.Module):
    """Heads with a norm each, of which the first token is not rotated, nor the last features of any."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.RMSNorm(self.size)
        self.out = nn.Linear(width, width)
        self.register_buffer("frequencies", 10.0 ** -torch.arange(self.size // 2))

    def rotated(self, x: Tensor) -> Tensor:
        first, x = x.split((1, x.shape[-2] - 1), dim=-2)
        angles = torch.arange(x.shape[-2], device=x.device)[:, None] * self.frequencies.repeat(2)
        left, right = x.chunk(2, dim=-1)
        x = x * angles.cos() + torch.cat([-right, left], dim=-1) * angles.sin()
        return torch.cat([first, torch.cat([x, x[..., self.size :]], dim=-1)], dim=-2)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], self.heads, self.size)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        weights = (self.rotated(self.norm(q)) @ self.rotated(self.norm(k)).mT).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


@graph(expect_cut=True, reason="whole heads")
def swap_heads_rotated() -> Net:
    return token_net(RotatedHeads(16, 4)), tokens()


class SlicedHeads(nn.Module):
    """Fewer keys than queries in one projection, told apart by slices."""

    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * key_heads) * self.size)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        fused, stop = self.qkv(x), self.heads * self.size
        more = stop + self.key_heads * self.size
        parts = (fused[..., :stop], fused[..., stop:more], fused[..., more:])
        q, k, v = (part.view(*x.shape[:-1], -1, self.size).transpose(1, 2) for part in parts)
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
        return x + self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


@graph(expect_cut=True, reason="the stream at least; heads with the keys that they share")
def swap_heads_sliced() -> Net:
    return token_net(SlicedHeads(16, 4, 2)), tokens()
