"""Nets whose pattern is a table of vectors: tokens, positions, words."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import Mlp, token_net, tokens, words
from graphs.registry import Net, graph


class PositionParameter(nn.Module):
    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pos_embed


@graph(expect_cut=True, reason="the stream with the positions' width")
def embedding_position_parameter() -> Net:
    return token_net(PositionParameter(9, 16), nn.GELU()), tokens()


class PositionBuffer(nn.Module):
    """Fixed sines, cut to the length of the input; they can't be silenced."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        angles = torch.arange(length)[:, None] / 10 ** torch.linspace(0, 2, width // 2)
        self.register_buffer("pe", torch.cat([angles.sin(), angles.cos()], dim=1).unsqueeze(0))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.size(1)]


@graph(expect_cut=True, reason="the hidden layer behind it; the fixed positions aren't silent")
def embedding_position_buffer() -> Net:
    return token_net(PositionBuffer(20, 16), Mlp(16, 20)), tokens()


class ClassToken(nn.Module):
    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, length + 1, width))
        self.mlp = Mlp(width, 20)

    def forward(self, x: Tensor) -> Tensor:
        token = self.cls_token.expand(x.shape[0], -1, -1)
        x = torch.cat((token, x), dim=1) + self.positions
        return (x + self.mlp(x))[:, 0]


@graph(expect_cut=True, reason="the stream with token and positions, and the hidden layer")
def embedding_class_token() -> Net:
    return token_net(ClassToken(16, 9)), tokens()


class PatchTokens(nn.Module):
    """Image patches, flattened into tokens, with resized positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, 4, stride=4)
        self.positions = nn.Parameter(torch.zeros(1, width, 3, 3))
        self.mlp = Mlp(width, 20)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.proj(x)
        x = x + F.interpolate(self.positions, size=x.shape[-2:], mode="bicubic", align_corners=False)
        x = x.flatten(2).transpose(1, 2)
        return self.head((x + self.mlp(x)).mean(dim=1))


@graph(expect_cut=True, reason="the stream with the positions' width, and the hidden layer")
def embedding_patches() -> Net:
    return PatchTokens(12), torch.randn(2, 3, 8, 8)


class TiedEmbedding(nn.Module):
    """The output layer reads with the same table that wrote the stream."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.mlp = Mlp(width, 20)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.head(x + self.mlp(x))


@graph(expect_cut=True, reason="the stream, on the one table, and the hidden layer")
def embedding_tied() -> Net:
    return TiedEmbedding(11, 16), words()


class TiedByFunction(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.inner = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.inner(self.embed(x)))
        return x @ self.embed.weight.t()


@graph(expect_cut=True, reason="one set of channels before and behind the inner layer")
def embedding_tied_by_function() -> Net:
    return TiedByFunction(11, 16), words()


class WordClassifier(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.fc = nn.Linear(width, 12)
        self.out = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.fc(self.embed(x).mean(dim=1))))


@graph(expect_cut=True, reason="the table's width and the hidden layer")
def embedding_classifier() -> Net:
    return WordClassifier(11, 16), words()


class BagClassifier(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(vocabulary, width, mode="mean")
        self.fc = nn.Linear(width, 12)
        self.out = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.fc(self.bag(x))))


@graph(expect_cut=True, reason="the hidden layer, and the table's width")
def embedding_bag() -> Net:
    return BagClassifier(11, 16), words()


class TextConv(nn.Module):
    """Convolutions of several lengths over words, pooled and joined."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.convs = nn.ModuleList([nn.Conv1d(width, 6, length) for length in (2, 3)])
        self.fc = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).permute(0, 2, 1)
        return self.fc(torch.cat([F.relu(conv(x)).max(dim=2)[0] for conv in self.convs], dim=1))


@graph(expect_cut=True, reason="the table's width and the channels of every convolution")
def embedding_text_conv() -> Net:
    return TextConv(11, 12), words()


class SummedTables(nn.Module):
    """Words, positions and segments are summed, then normed (BERT)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(16, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("position_ids", torch.arange(16).expand(1, -1), persistent=False)
        self.mlp = Mlp(width, 20)
        self.out = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        positions = self.positions(self.position_ids[:, : x.shape[1]])
        segments = self.segments(torch.zeros_like(x))
        return self.out(self.mlp(self.norm(self.words(x) + positions + segments)))


@graph(
    expect_cut=True, reason="the hidden layer, and the channels behind it; the norm keeps the tables' width"
)
def embedding_summed_tables() -> Net:
    return SummedTables(11, 16), words()


class CodeBook(nn.Module):
    """Vectors are replaced by their nearest in a table (vector quantisation)."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width)

    def forward(self, x: Tensor) -> Tensor:
        distances = (x.unsqueeze(-2) - self.table.weight).square().sum(-1)
        quantised = self.table(distances.argmin(dim=-1))
        return x + (quantised - x).detach()


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def embedding_code_book() -> Net:
    return token_net(CodeBook(7, 12), Mlp(12, 20), width=12), tokens()
