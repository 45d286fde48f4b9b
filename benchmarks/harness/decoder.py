"""A decoder as today's language models have them, small enough for a CPU: takes bytes, gives logits.

Root-mean-square norms, rotary positions (Su et al., 2021), grouped queries (Ainslie et al., EMNLP 2023) and a
gated feed-forward layer (Shazeer, 2020). Needs torch alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

NUM_BYTES = 256
ROTARY_BASE = 10_000.0


class Norm(nn.Module):
    """x / sqrt(mean(x^2)) * weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, stream: Tensor) -> Tensor:
        return functional.rms_norm(stream, self.weight.shape, self.weight, 1e-6)


class Attention(nn.Module):
    """Causal; two query heads share a key and value head."""

    def __init__(self, width: int, *, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        self.head_width, self.num_sharing = width // num_heads, num_heads // num_kv_heads
        self.query = nn.Linear(width, num_heads * self.head_width, bias=False)
        self.key = nn.Linear(width, num_kv_heads * self.head_width, bias=False)
        self.value = nn.Linear(width, num_kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(num_heads * self.head_width, width, bias=False)
        half = self.head_width // 2
        self.register_buffer("speeds", ROTARY_BASE ** (-torch.arange(half) / half), persistent=False)

    def forward(self, stream: Tensor) -> Tensor:
        query, key, value = (self._heads(layer(stream)) for layer in (self.query, self.key, self.value))
        key, value = (self._shared(part) for part in (self._turned(key), value))
        mixed = functional.scaled_dot_product_attention(self._turned(query), key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _heads(self, projected: Tensor) -> Tensor:
        """(batch, place, heads * width) as (batch, head, place, width)."""
        return projected.unflatten(2, (-1, self.head_width)).transpose(1, 2)

    def _shared(self, heads: Tensor) -> Tensor:
        """Each key and value head once for every query head that reads it."""
        return heads.unsqueeze(2).expand(-1, -1, self.num_sharing, -1, -1).flatten(1, 2)

    def _turned(self, heads: Tensor) -> Tensor:
        first, second = heads.chunk(2, dim=-1)
        angles = torch.outer(torch.arange(heads.shape[2], device=heads.device), self.speeds).repeat(1, 2)
        return heads * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


class FeedForward(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, stream: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(stream)) * self.up(stream))


class Layer(nn.Module):
    """Attention, then feed-forward, each on a normed copy of the stream."""

    def __init__(self, width: int, hidden: int, **heads: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = Norm(width), Attention(width, **heads)
        self.feed_norm, self.feed = Norm(width), FeedForward(width, hidden)

    def forward(self, stream: Tensor) -> Tensor:
        stream = stream + self.attention(self.attention_norm(stream))
        return stream + self.feed(self.feed_norm(stream))


class Decoder(nn.Module):
    """Predicts the next byte at every place."""

    def __init__(
        self,
        *,
        width: int = 128,
        hidden: int = 384,
        num_layers: int = 6,
        num_heads: int = 8,
        num_kv_heads: int = 4,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_BYTES, width)
        heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        self.layers = nn.ModuleList(Layer(width, hidden, **heads) for _ in range(num_layers))
        self.norm = Norm(width)
        self.head = nn.Linear(width, NUM_BYTES, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        stream = self.embedding(text)
        for layer in self.layers:
            stream = layer(stream)
        return self.head(self.norm(stream))


def draw_weights(model: nn.Module) -> None:
    """Normal with deviation 1 / sqrt(inputs); what writes to the stream is smaller.

    By the square root of the number of writers: the stream then has the same scale at any depth.
    """
    num_writers = sum(isinstance(module, Attention | FeedForward) for module in model.modules())
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            deviation = module.in_features**-0.5
            if name.endswith((".out", ".down")):
                deviation /= max(1, num_writers) ** 0.5
            nn.init.normal_(module.weight, std=deviation)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.5)
        elif isinstance(module, Norm):
            nn.init.ones_(module.weight)
