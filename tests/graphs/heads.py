"""Nets whose pattern ties or shares attention heads: grouped queries, windows, biases, rotations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import Mlp, token_net, tokens
from graphs.registry import Net, graph


class GroupedQuery(nn.Module):
    """Four query heads share two key heads; subclasses say how the keys are repeated."""

    def __init__(self, width: int, num_heads: int, num_key_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_key_heads = num_key_heads
        self.head_dim = head_dim
        self.repeats = num_heads // num_key_heads
        self.q_proj = nn.Linear(width, num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(width, num_key_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(width, num_key_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, width, bias=False)

    def repeat(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.repeats, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, self.repeat(k), self.repeat(v))
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


@graph(
    expect_cut=True, reason="key heads with all of their query heads, and the channels that enter and leave"
)
def heads_grouped_repeat() -> Net:
    return token_net(GroupedQuery(12, 4, 2, 4), width=12), tokens()


class GroupedQueryByExpand(GroupedQuery):
    def repeat(self, x: Tensor) -> Tensor:
        batch, num_key_heads, length, head_dim = x.shape
        x = x[:, :, None, :, :].expand(batch, num_key_heads, self.repeats, length, head_dim)
        return x.reshape(batch, num_key_heads * self.repeats, length, head_dim)


@graph(
    expect_cut=True, reason="key heads with all of their query heads, and the channels that enter and leave"
)
def heads_grouped_expand() -> Net:
    return token_net(GroupedQueryByExpand(12, 6, 2, 4), width=12), tokens()


class GroupedQueryOption(GroupedQuery):
    """The fused operator repeats the keys itself; all sizes are stored."""

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.num_key_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.num_key_heads, self.head_dim).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, self.num_heads * self.head_dim))


@graph(
    expect_cut=True, reason="key heads with all of their query heads, and the channels that enter and leave"
)
def heads_grouped_option() -> Net:
    return token_net(GroupedQueryOption(12, 4, 2, 4), width=12), tokens()


class MultiQuery(nn.Module):
    """All query heads share one key head, by broadcasting."""

    def __init__(self, width: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.q = nn.Linear(width, num_heads * head_dim)
        self.kv = nn.Linear(width, 2 * head_dim)
        self.out = nn.Linear(num_heads * head_dim, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
        k, v = self.kv(x).unsqueeze(1).split(self.head_dim, dim=-1)
        weights = (q @ k.transpose(-1, -2) * 0.5).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, -1))


@graph(expect_cut=True, reason="single query heads at least, and the channels that enter and leave")
def heads_multi_query() -> Net:
    return token_net(MultiQuery(12, 4, 4), width=12), tokens()


def rotate_half(x: Tensor) -> Tensor:
    left, right = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-right, left), dim=-1)


class Rotary(nn.Module):
    """Queries and keys are rotated by position."""

    def __init__(self, width: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.q = nn.Linear(width, num_heads * head_dim)
        self.k = nn.Linear(width, num_heads * head_dim)
        self.v = nn.Linear(width, num_heads * head_dim)
        self.out = nn.Linear(num_heads * head_dim, width)
        self.register_buffer("frequencies", 100.0 ** -torch.linspace(0, 1, head_dim // 2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        positions = torch.arange(length, device=x.device, dtype=x.dtype)
        angles = torch.outer(positions, self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        q = q * angles.cos() + rotate_half(q) * angles.sin()
        k = k * angles.cos() + rotate_half(k) * angles.sin()
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(out.transpose(1, 2).reshape(batch, length, -1))


@graph(expect_cut=True, reason="whole heads, and the channels that enter and leave")
def heads_rotary() -> Net:
    return token_net(Rotary(12, 3, 4), width=12), tokens()


class Window(nn.Module):
    """Shifted windows with a table of relative positions (Swin).

    `shift` equals the number of heads on purpose.
    """

    def __init__(self, width: int, num_heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.window_size = window
        self.shift_size = shift
        self.scale = (width // num_heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, num_heads))
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(
            1
        )
        offsets = grid[:, :, None] - grid[:, None, :] + window - 1
        self.register_buffer("relative_position_index", offsets[0] * (2 * window - 1) + offsets[1])

    def forward(self, x: Tensor) -> Tensor:
        B, H, W, C = x.shape
        size = self.window_size
        x = torch.roll(x, shifts=(-self.shift_size, -self.shift_size), dims=(1, 2))
        x = (
            x.view(B, H // size, size, W // size, size, C)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(-1, size * size, C)
        )
        qkv = self.qkv(x).reshape(x.shape[0], size * size, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        bias = bias.view(size * size, size * size, -1).permute(2, 0, 1).contiguous()
        weights = (q @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(dim=-1)
        x = self.proj((weights @ v).transpose(1, 2).flatten(2))
        x = x.view(B, H // size, W // size, size, size, -1).permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, -1)
        return torch.roll(x, shifts=(self.shift_size, self.shift_size), dims=(1, 2))


@graph(
    expect_cut=True,
    reason="whole heads with their columns in the table, and the channels that enter and leave",
)
def heads_window() -> Net:
    return token_net(Window(12, 3, 4, 3), width=12), torch.randn(1, 8, 8, 6)


class BiasByEmbedding(nn.Module):
    """Buckets of distance looked up per head (T5)."""

    def __init__(self, width: int, num_heads: int, num_buckets: int) -> None:
        super().__init__()
        self.n_heads = num_heads
        self.num_buckets = num_buckets
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.relative_attention_bias = nn.Embedding(num_buckets, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        positions = torch.arange(length, device=x.device)
        buckets = (positions[:, None] - positions[None, :]).abs().clamp(max=self.num_buckets - 1)
        bias = self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)
        q, k, v = (
            f(x).view(batch, length, self.n_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        weights = F.softmax(q @ k.transpose(3, 2) + bias, dim=-1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, -1))


@graph(
    expect_cut=True,
    reason="whole heads with their columns in the table, and the channels that enter and leave",
)
def heads_bias_embedding() -> Net:
    return token_net(BiasByEmbedding(12, 4, 5), width=12), tokens()


class TalkingHeads(nn.Module):
    """Heads are mixed with each other before and behind the softmax."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.mix_scores = nn.Linear(num_heads, num_heads)
        self.mix_weights = nn.Linear(num_heads, num_heads)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, N, _ = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = self.mix_scores((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).softmax(dim=2)
        weights = self.mix_weights(scores).permute(0, 3, 1, 2)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, N, -1))


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def heads_talking() -> Net:
    return token_net(TalkingHeads(12, 3), Mlp(12, 20), width=12), tokens()


class QueryKeyNorm(nn.Module):
    """Queries and keys are normed over the head's dimensions; the temperature is learned per head."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.q_norm = nn.LayerNorm(width // num_heads)
        self.k_norm = nn.LayerNorm(width // num_heads)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        out = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, scale=1.0)
        return self.proj(out.transpose(1, 2).flatten(2))


@graph(expect_cut=True, reason="whole heads: a silent value is silent whatever weighs it")
def heads_query_key_norm() -> Net:
    return token_net(QueryKeyNorm(16, 4)), tokens()
