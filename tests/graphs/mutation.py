"""Nets whose pattern writes into a tensor that exists already."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, Mlp, image, image_net, token_net, tokens
from graphs.registry import Net, graph


class AddIntoSlice(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.extra = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y[:, :4] += self.extra(x)
        return F.relu(y)


@graph(expect_cut=True, reason="the channels that enter, and those that no literal slice names")
def mutation_add_into_slice() -> Net:
    return image_net(AddIntoSlice(12), width=12), image()


class ZeroSlice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, 2:5] = 0
        return x


@graph(expect_cut=True, reason="the layer behind it at least")
def mutation_zero_slice() -> Net:
    return image_net(ZeroSlice(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class FillSlice(nn.Module):
    """Channels overwritten with a value that isn't zero."""

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.5
        x[:, -3:].fill_(0.25)
        return x


@graph(expect_cut=True, reason="the layer behind it at least")
def mutation_fill_slice() -> Net:
    return image_net(FillSlice(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class ThroughView(nn.Module):
    """A view is activated in place, its base is read."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        left = x.narrow(1, 0, x.shape[1] // 2)
        left.mul_(2).relu_()
        return x


@graph(expect_cut=True, reason="the layer behind it at least")
def mutation_through_view() -> Net:
    return image_net(
        nn.Conv2d(12, 12, 1), ThroughView(), ConvNormRelu(12, 10), width=12, out_width=10
    ), image()


class ScatterIntoZeros(nn.Module):
    """Channels are written to stored places of a wider tensor."""

    def __init__(self, width: int, out_width: int) -> None:
        super().__init__()
        self.out_width = out_width
        self.register_buffer("places", torch.arange(width) * 2 % out_width)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        out = x.new_zeros(batch, self.out_width, height, width)
        return out.index_add(1, self.places, x)


@graph(expect_cut=True, reason="the layer behind it at least; the rest needs a cut buffer of places")
def mutation_scatter() -> Net:
    return image_net(ScatterIntoZeros(8, 16), ConvNormRelu(16, 10), width=8, out_width=10), image()


class Preallocated(nn.Module):
    """Branches are copied into one tensor of a stored width."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.left = nn.Conv2d(in_channels, 6, 1)
        self.right = nn.Conv2d(in_channels, 10, 3, padding=1)
        self.split_at = 6
        self.total = 16

    def forward(self, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], self.total, *x.shape[2:], dtype=x.dtype, device=x.device)
        out[:, : self.split_at] = self.left(x)
        out[:, self.split_at :] = self.right(x)
        return out


@graph(expect_cut=True, reason="the channels that enter, and the layer behind")
def mutation_preallocated() -> Net:
    return image_net(Preallocated(12), ConvNormRelu(16, 10), width=12, out_width=10), image()


class MaskedFill(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.masked_fill(x < 0.2, -1.0)


@graph(expect_cut=True, reason="the layer behind it; zero becomes minus one")
def mutation_masked_fill() -> Net:
    return image_net(MaskedFill(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class RunningStatistic(nn.Module):
    """A buffer of the model's own is updated in training and read in every pass."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("level", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.level.mul_(0.9).add_(x.abs().mean((0, 2, 3)), alpha=0.1)
        return x / (self.level.view(1, -1, 1, 1) + 0.5)


@graph(expect_cut=True, reason="the layer behind it; the channels too if the buffer is cut with them")
def mutation_running_statistic() -> Net:
    return image_net(RunningStatistic(12), ConvNormRelu(12, 10), width=12, out_width=10), image()


class CallCounter(nn.Module):
    """The module remembers how often it was called, and what it saw last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = Mlp(width, 16)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.mlp(x)


@graph(expect_cut=True, reason="the stream and the hidden layer")
def mutation_call_counter() -> Net:
    return token_net(CallCounter(12), width=12), tokens()


class ResidualInPlace(nn.Module):
    """The sum and the activation are in place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y += x
        return y.relu_()


@graph(expect_cut=True, reason="the stream")
def mutation_residual_in_place() -> Net:
    return image_net(nn.Conv2d(12, 12, 1), ResidualInPlace(12), width=12), image()


class IndexPut(nn.Module):
    """Single channels are overwritten by number, with a computed map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1.0
        y[:, [1, 7]] = self.map(x)
        return y


@graph(expect_cut=True, reason="the layer behind it at least")
def mutation_index_put() -> Net:
    return image_net(IndexPut(12), ConvNormRelu(12, 10), width=12, out_width=10), image()


class PartInPlace(nn.Module):
    """A convolution over the first channels alone, written back to where they came from."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, 12, 1), nn.Conv2d(12, 3, 1)
        self.part = nn.Conv2d(4, 4, 3, padding=1)
        self.width = 4

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        y[:, : self.width] = self.part(y[:, : self.width].clone())
        return self.after(y)


@graph(expect_cut=True, reason="both parts: the width that names the first one follows")
def mutation_part_in_place() -> Net:
    return PartInPlace(), image()
