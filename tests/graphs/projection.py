"""Nets whose pattern is attention with separate query, key and value projections."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import Mlp, token_net, tokens
from graphs.registry import Net, graph


class SeparateByNumHeads(nn.Module):
    """Sizes from the input's width and `num_heads`."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, N, C = x.shape
        q = self.query(x).view(B, N, self.num_heads, C // self.num_heads).transpose(1, 2)
        k = self.key(x).view(B, N, self.num_heads, C // self.num_heads).transpose(1, 2)
        v = self.value(x).view(B, N, self.num_heads, C // self.num_heads).transpose(1, 2)
        weights = F.softmax(q @ k.transpose(2, 3) / math.sqrt(C // self.num_heads), dim=-1)
        return self.out((weights @ v).transpose(1, 2).contiguous().view(B, N, C))


@graph(expect_cut=True, reason="the hidden layer behind it; the heads' sizes hang on the input's width")
def projection_num_heads() -> Net:
    return token_net(SeparateByNumHeads(16, 4), Mlp(16, 20)), tokens()


class SeparateByHeadDim(nn.Module):
    """The number of heads is what is left (-1), the output is flattened the same way."""

    def __init__(self, width: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.scaling = head_dim**-0.5
        self.q_proj = nn.Linear(width, num_heads * head_dim)
        self.k_proj = nn.Linear(width, num_heads * head_dim)
        self.v_proj = nn.Linear(width, num_heads * head_dim)
        self.o_proj = nn.Linear(num_heads * head_dim, width)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], -1, self.head_dim)
        q = self.q_proj(x).view(shape).transpose(1, 2)
        k = self.k_proj(x).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        weights = torch.matmul(q, k.transpose(2, 3)) * self.scaling
        out = torch.matmul(F.softmax(weights, dim=-1), v).transpose(1, 2)
        return self.o_proj(out.reshape(*x.shape[:-1], -1))


@graph(expect_cut=True, reason="whole heads without any attribute to mend")
def projection_head_dim() -> Net:
    return token_net(SeparateByHeadDim(12, 4, 4), width=12), tokens()


class SeparateByBoth(nn.Module):
    """`num_heads`, `head_dim` and their product are stored (BERT); `head_dim` is used in arithmetic too."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_attention_heads = num_heads
        self.attention_head_size = width // num_heads
        self.all_head_size = width
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dense = nn.Linear(width, width)

    def split_heads(self, x: Tensor) -> Tensor:
        # As BERT writes it: the sum of a torch.Size and a tuple.
        shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)  # noqa: RUF005
        return x.view(shape).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            self.split_heads(self.query(x)),
            self.split_heads(self.key(x)),
            self.split_heads(self.value(x)),
        )
        scores = q @ k.transpose(-1, -2) * self.attention_head_size**-0.5
        context = (scores.softmax(dim=-1) @ v).permute(0, 2, 1, 3).contiguous()
        return self.dense(context.view(context.size()[:-2] + (self.all_head_size,)))  # noqa: RUF005


@graph(
    expect_cut=True, reason="whole heads, with two attributes to mend, and the channels that enter and leave"
)
def projection_stored_sizes() -> Net:
    return token_net(SeparateByBoth(16, 4)), tokens()


class DefaultScale(nn.Module):
    """The fused operator divides by the square root of the head's size by itself."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_kv = nn.Linear(width, 2 * width, bias=False)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q = self.to_q(x)
        k, v = self.to_kv(x).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).flatten(2))


@graph(expect_cut=True, reason="whole heads; the head's size must stay")
def projection_default_scale() -> Net:
    return token_net(DefaultScale(16, 4)), tokens()


class SingleHead(nn.Module):
    """One head, so its dimensions are the only thing to cut; the scale follows their number."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.q = nn.Linear(width, inner)
        self.k = nn.Linear(width, inner)
        self.v = nn.Linear(width, inner)
        self.o = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x)
        weights = (q @ self.k(x).mT / math.sqrt(q.shape[-1])).softmax(dim=-1)
        return self.o(weights @ self.v(x))


@graph(expect_cut=True, reason="the values, and the channels that enter; a cut query would change the scale")
def projection_single_head() -> Net:
    return token_net(SingleHead(16, 12)), tokens()


class CrossAttention(nn.Module):
    """Queries are learned, keys and values come from the input."""

    def __init__(self, width: int, num_heads: int, num_queries: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.queries = nn.Parameter(torch.randn(1, num_queries, width))
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.q = nn.Linear(width, width)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.num_heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q = self.heads(self.q(self.queries).expand(x.shape[0], -1, -1))
        out = F.scaled_dot_product_attention(q, self.heads(self.k(x)), self.heads(self.v(x)))
        return out.transpose(1, 2).flatten(2)


@graph(expect_cut=True, reason="whole heads, the channels that enter, and the learned queries' width")
def projection_cross_attention() -> Net:
    return token_net(CrossAttention(16, 4, 3)), tokens()


class ReducedKeys(nn.Module):
    """Keys and values from a smaller image (PVT)."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, 2, stride=2)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, C, H, W = x.shape
        tokens_BNC = x.flatten(2).transpose(1, 2)
        q = self.q(tokens_BNC).reshape(B, H * W, self.num_heads, -1).transpose(1, 2)
        small = self.reduce(x).reshape(B, C, -1).transpose(1, 2)
        k, v = self.kv(small).reshape(B, -1, 2, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, H * W, C)
        return self.proj(out).transpose(1, 2).reshape(B, C, H, W)


@graph(expect_cut=True, reason="the layer behind it; the sizes inside hang on the input's width")
def projection_reduced_keys() -> Net:
    stem = nn.Conv2d(3, 16, 3, padding=1)
    end = nn.Sequential(nn.Conv2d(16, 12, 1), nn.ReLU(), nn.Conv2d(12, 5, 1))
    return nn.Sequential(stem, ReducedKeys(16, 4), end), torch.randn(2, 3, 4, 4)


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def projection_multihead_module() -> Net:
    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.attention(x, x, x, need_weights=False)[0]

    return token_net(SelfAttention(), Mlp(16, 20)), tokens()


@graph(expect_cut=True, reason="the feed-forward layer at least")
def projection_encoder_layer() -> Net:
    layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=24, batch_first=True, norm_first=True)
    return token_net(layer), tokens()


@graph(expect_cut=True, reason="the feed-forward layers at least")
def projection_encoder_stack() -> Net:
    layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=24, activation="gelu", batch_first=True)
    return token_net(nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)), tokens()
