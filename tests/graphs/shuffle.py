"""Nets whose pattern moves channels to other places."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, Mlp, image, image_net, token_net, tokens
from graphs.registry import Net, graph


class ShuffleByView(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.size()
        x = x.view(batch, self.groups, channels // self.groups, height, width)
        return torch.transpose(x, 1, 2).contiguous().view(batch, channels, height, width)


@graph(expect_cut=True, reason="an equal number per shuffled group")
def shuffle_by_view() -> Net:
    return image_net(ShuffleByView(4)), image()


@graph(expect_cut=True, reason="the layer behind the pattern at least")
def shuffle_between_grouped_convs() -> Net:
    first = nn.Conv2d(16, 16, 1, groups=4)
    second = nn.Conv2d(16, 16, 1, groups=4)
    layers = (first, ShuffleByView(4), second, nn.ReLU(), ConvNormRelu(16, 12))
    return image_net(*layers, out_width=12), image()


class ShuffleUnit(nn.Module):
    """Half by chunk, the other half through a branch, then shuffled with -1 in the view (ShuffleNet v2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(
            ConvNormRelu(half, half), nn.Conv2d(half, half, 3, padding=1, groups=half), nn.BatchNorm2d(half)
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        out = torch.cat((left, self.branch(right)), dim=1)
        batch, _, height, width = out.shape
        return out.view(batch, 2, -1, height, width).transpose(1, 2).reshape(batch, -1, height, width)


@graph(expect_cut=True, reason="the inside of the branches at least")
def shuffle_by_chunk() -> Net:
    return image_net(ShuffleUnit(16), ShuffleUnit(16)), image()


class ShuffleByBuffer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("order", torch.arange(width).view(4, -1).t().reshape(-1).clone())

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.order]


@graph(expect_cut=True, reason="the layer behind the pattern at least; the rest needs a renumbered buffer")
def shuffle_by_buffer() -> Net:
    return image_net(ShuffleByBuffer(16), ConvNormRelu(16, 12), out_width=12), image()


class Flip(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1)


@graph(expect_cut=True, reason="every channel, with its mirrored place in the reader")
def shuffle_flip() -> Net:
    return image_net(Flip()), image()


class MirroredSum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.flip(1)


@graph(expect_cut=True, reason="pairs of channels that mirror each other")
def shuffle_mirrored_sum() -> Net:
    return image_net(MirroredSum()), image()


class Roll(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, shifts=4, dims=1)


@graph(expect_cut=True, reason="the layer behind the pattern at least; the shift is a literal")
def shuffle_roll() -> Net:
    return image_net(Roll(), ConvNormRelu(16, 12), out_width=12), image()


class RolledSpatially(nn.Module):
    """Parts of the channels are shifted by a pixel each (shift network)."""

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d = x.chunk(4, dim=1)
        return torch.cat([a.roll(1, 2), b.roll(-1, 2), c.roll(1, 3), d.roll(-1, 3)], dim=1)


@graph(expect_cut=True, reason="an equal number in each quarter")
def shuffle_spatial_shift() -> Net:
    return image_net(RolledSpatially()), image()


@graph(expect_cut=True, reason="blocks of four channels that become one")
def shuffle_pixel_shuffle() -> Net:
    return image_net(nn.PixelShuffle(2), width=32, out_width=8), image()


@graph(expect_cut=True, reason="each channel with the four that it becomes")
def shuffle_pixel_unshuffle() -> Net:
    return image_net(nn.PixelUnshuffle(2), width=8, out_width=32), image()


class Focus(nn.Module):
    """Space to depth by slices (YOLOv5)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)


@graph(expect_cut=True, reason="each channel with the four that it becomes")
def shuffle_focus() -> Net:
    return image_net(Focus(), width=8, out_width=32), image()


class PatchMerging(nn.Module):
    """Channels-last patches joined, as in Swin, without the norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        batch, height, width, channels = x.shape
        x = x.reshape(batch, height // 2, 2, width // 2, 2, channels).permute(0, 1, 3, 4, 2, 5).flatten(3)
        return self.reduction(x).permute(0, 3, 1, 2)


@graph(expect_cut=True, reason="the channels before and behind the merge")
def shuffle_patch_merging() -> Net:
    return image_net(PatchMerging(8), nn.ReLU(), width=8, out_width=16), image()


class Unfolded(nn.Module):
    """A convolution written as unfold and a matrix product."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(9 * in_channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        columns = F.unfold(x, kernel_size=3, padding=1)
        out = self.linear(columns.transpose(1, 2)).transpose(1, 2)
        return out.reshape(x.shape[0], -1, x.shape[2], x.shape[3])


@graph(
    expect_cut=True, reason="each channel with its nine places in the reader, and the linear layer's outputs"
)
def shuffle_unfold() -> Net:
    return image_net(Unfolded(8, 12), nn.ReLU(), width=8, out_width=12), image()


class Folded(nn.Module):
    """Overlapping patches summed back into an image."""

    def forward(self, x: Tensor) -> Tensor:
        columns = F.unfold(x, kernel_size=2, stride=1)
        return F.fold(columns * 0.5, output_size=x.shape[2:], kernel_size=2, stride=1)


@graph(expect_cut=True, reason="the layer behind the pattern at least")
def shuffle_fold() -> Net:
    return image_net(Folded(), ConvNormRelu(8, 12), width=8, out_width=12), image()


class MixerBlock(nn.Module):
    """Tokens mixed by one MLP, channels by another."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.token_mlp = Mlp(length, 12)
        self.channel_mlp = Mlp(width, 24)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.token_mlp(x.transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mlp(x)


@graph(expect_cut=True, reason="the hidden layers of both MLPs")
def shuffle_token_mixer() -> Net:
    return token_net(MixerBlock(9, 16)), tokens()


class PatchMlp(nn.Module):
    """Patches moved into tokens and back by reshapes and permutes, as einops would."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.patch = patch
        self.mlp = Mlp(patch * patch, 10)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        rows, columns = height // self.patch, width // self.patch
        x = x.reshape(batch, channels, rows, self.patch, columns, self.patch).permute(0, 1, 2, 4, 3, 5)
        x = self.mlp(x.reshape(batch, channels, rows * columns, self.patch**2))
        x = x.reshape(batch, self.width, rows, columns, self.patch, self.patch).permute(0, 1, 2, 4, 3, 5)
        return x.reshape(batch, self.width, height, width)


@graph(expect_cut=True, reason="the hidden layer of the MLP; a bias makes the image's channels not silent")
def shuffle_patch_mlp() -> Net:
    return image_net(PatchMlp(8, 4), width=8), image()
