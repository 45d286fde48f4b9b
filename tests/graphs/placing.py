"""Nets that pick entries by index, or place them: gather, scatter, indexed sums, masks, packed sequences."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from graphs.registry import Net, graph

PLACES = torch.tensor([0, 1, 2, 1, 0])


class Placed(nn.Module):
    """Some way to move rows between a layer that writes channels and one that reads them."""

    def __init__(self, way: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(3, 12), nn.Linear(12, 4)
        self.way = way

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return self.after(self.way(self.before(x), places))


def placed(way: Callable[[Tensor, Tensor], Tensor], places: Tensor = PLACES) -> Net:
    return Placed(way), (torch.randn(5, 3), places)


@graph(expect_cut=True, reason="the channels, which no index runs over")
def placing_gather() -> Net:
    return placed(lambda h, places: h.gather(0, places[:, None].expand(-1, h.shape[1])))


@graph(expect_cut=True, reason="the channels, which no index runs over")
def placing_scatter() -> Net:
    def way(h: Tensor, places: Tensor) -> Tensor:
        return torch.zeros(6, h.shape[1], dtype=h.dtype, device=h.device).scatter_(
            0, places[:, None].expand_as(h), h
        )

    return placed(way, torch.tensor([0, 1, 2, 5, 4]))


@graph(expect_cut=True, reason="the channels, which no index runs over")
def placing_scatter_add() -> Net:
    """As graph networks sum over neighbors."""
    return placed(
        lambda h, places: h.new_zeros((3, *h.shape[1:])).scatter_add_(0, places.view(-1, 1).expand_as(h), h)
    )


@graph(expect_cut=True, reason="the channels, which no index runs over")
def placing_scatter_mean() -> Net:
    def way(h: Tensor, places: Tensor) -> Tensor:
        out = h.new_zeros(3, h.size(1))
        return out.scatter_reduce_(0, places[:, None].expand_as(h), h, "mean", include_self=False)

    return placed(way)


@graph(expect_cut=True, reason="the channels, which no index runs over")
def placing_index_add() -> Net:
    return placed(lambda h, places: h.new_zeros(3, h.shape[1]).index_add_(0, places, h))


@graph(expect_cut=True, reason="the channels, which no index runs over")
def placing_index_put() -> Net:
    def way(h: Tensor, places: Tensor) -> Tensor:
        out = torch.zeros_like(h)
        out[places] = h.flip(0)
        return out

    return placed(way, torch.tensor([3, 1, 0, 2, 4]))


@graph(expect_cut=True, reason="the reader's columns silence what a constant was written to")
def placing_index_put_constant() -> Net:
    def way(h: Tensor, places: Tensor) -> Tensor:
        out = h.clone()
        out[places] = torch.tensor(0.7, dtype=h.dtype)
        return out

    return placed(way, torch.tensor([3, 1]))


@graph(expect_cut=True, reason="the channels beside those that are picked", on_meta=False)
def placing_rows_by_mask() -> Net:
    """As experts pick their tokens."""

    def way(h: Tensor, mask: Tensor) -> Tensor:
        out = h.clone()
        out[mask] = 2 * h[mask]
        return out

    return placed(way, torch.tensor([True, False, True, True, False]))


@graph(expect_cut=True, reason="both writers lose the same channels", on_meta=False)
def placing_masked_scatter() -> Net:
    """As language models take in images."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.images, self.after = nn.Linear(3, 12), nn.Linear(7, 12), nn.Linear(12, 4)

        def forward(self, x: Tensor, image: Tensor, mask: Tensor) -> Tensor:
            words, image = self.words(x), self.images(image)
            return self.after(words.masked_scatter(mask.unsqueeze(-1).expand_as(words), image))

    mask = torch.tensor([True, False, True, True, False])
    return Joined(), (torch.randn(5, 3), torch.randn(3, 7), mask)


@graph(expect_cut=False, reason="a mask of its own for each channel")
def placing_masked_channels() -> Net:
    mask = torch.rand(5, 12) > 0.5
    return placed(lambda h, mask: h.masked_fill(mask, 0), mask)


@graph(expect_cut=False, reason="each channel has indices of its own")
def placing_gather_own_index() -> Net:
    return placed(lambda h, places: h.gather(0, places), torch.randint(5, (4, 12)))


@graph(expect_cut=False, reason="channels are picked by data")
def placing_gather_channels() -> Net:
    return placed(lambda h, places: h.gather(1, places), torch.randint(12, (5, 12)))


@graph(expect_cut=True, reason="the columns of the table")
def placing_embedding_bag() -> Net:
    model = nn.Sequential(nn.EmbeddingBag(20, 12, mode="mean"), nn.Linear(12, 4))
    return model, torch.randint(20, (3, 5))


class Packed(nn.Module):
    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.before, self.layer, self.after = nn.Linear(3, layer.input_size), layer, nn.Linear(10, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.before(x), lengths, batch_first=True, enforce_sorted=False
        )
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        return self.after(padded)


@graph(
    expect_cut=True, reason="the channels that a packed sequence carries, and the hidden state", on_meta=False
)
def placing_packed_lstm() -> Net:
    return Packed(nn.LSTM(12, 10, batch_first=True)), (torch.randn(2, 5, 3), torch.tensor([3, 5]))


class Mixed(nn.Module):
    """A Fourier transform over tokens, and maybe over channels as well."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(3, 12), nn.Linear(12, 4)
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return self.after(torch.fft.fftn(self.before(x), dim=self.axes).real)


@graph(expect_cut=True, reason="the transform runs over tokens")
def placing_fourier_tokens() -> Net:
    return Mixed(1), torch.randn(2, 5, 3)


@graph(expect_cut=False, reason="every frequency is a sum over all channels")
def placing_fourier_channels() -> Net:
    return Mixed(1, 2), torch.randn(2, 5, 3)


def neighbors(values: Tensor) -> Tensor:
    """A sparse matrix in which every row has the next one for a neighbor."""
    rows = torch.arange(5)
    return torch.sparse_coo_tensor(
        torch.stack([rows, (rows + 1) % 5]), values, (5, 5), check_invariants=False
    )


@graph(expect_cut=True, reason="the matrix is a constant, and runs over rows alone", on_meta=False)
def placing_sparse_neighbors() -> Net:
    return placed(lambda h, places: neighbors(torch.ones(5, dtype=h.dtype)) @ h)


@graph(expect_cut=False, reason="the matrix is made of one channel", on_meta=False)
def placing_sparse_weights() -> Net:
    return placed(lambda h, places: neighbors(h[:, 0]) @ h)


@graph(expect_cut=False, reason="the channels pass through a sparse tensor", on_meta=False)
def placing_sparse_copy() -> Net:
    return placed(lambda h, places: h.relu().to_sparse().to_dense())


def nested_and_back(h: Tensor, places: Tensor) -> Tensor:
    with warnings.catch_warnings():
        # torch says once that nested tensors may change.
        warnings.simplefilter("ignore")
        return torch.nested.as_nested_tensor([h[:2], h[2:]]).to_padded_tensor(0.0)


@graph(expect_cut=False, reason="the channels pass through a nested tensor", on_meta=False)
def placing_nested_copy() -> Net:
    return placed(nested_and_back)


class ScoredHeads(nn.Module):
    """Graph attention: a learned vector of each head scores the nodes, and their neighbors add up."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.width = 4, 3
        self.before, self.after = nn.Linear(3, 12), nn.Linear(12, 4)
        self.score = nn.Parameter(torch.randn(1, 4, 3))

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        h = self.before(x).view(-1, self.heads, self.width)
        weights = (h * self.score).sum(-1).sigmoid()[places]
        sent = weights.unsqueeze(-1) * h[places]
        received = torch.zeros_like(h).scatter_add_(0, places[:, None, None].expand_as(sent), sent)
        return self.after(received.view(-1, self.heads * self.width))


@graph(expect_cut=True, reason="whole heads")
def placing_scored_heads() -> Net:
    return ScoredHeads(), (torch.randn(5, 3), PLACES)
