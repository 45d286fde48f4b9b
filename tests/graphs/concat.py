"""Nets whose pattern joins, splits or selects channels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, image, image_net
from graphs.registry import Net, graph


class DenseLayer(nn.Module):
    def __init__(self, in_channels: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.conv(F.relu(self.norm(torch.cat(features, dim=1))))


class DenseBlock(nn.Module):
    def __init__(self, in_channels: int, growth: int, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([DenseLayer(in_channels + i * growth, growth) for i in range(num_layers)])

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


@graph(expect_cut=True, reason="the stem and every layer's growth, each with its place in all later norms")
def concat_dense_block() -> Net:
    return image_net(DenseBlock(8, 4, 3), width=8, out_width=20), image()


class Inception(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch1 = ConvNormRelu(width, 6)
        self.branch2 = nn.Sequential(ConvNormRelu(width, 8), ConvNormRelu(8, 10))
        self.branch3 = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(width, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x)], 1)


@graph(expect_cut=True, reason="every branch, at its own place in the reader")
def concat_inception() -> Net:
    return image_net(Inception(12), ConvNormRelu(20, 8), width=12, out_width=8), image()


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = ConvNormRelu(3, 8)
        self.down2 = ConvNormRelu(8, 16)
        self.bottom = ConvNormRelu(16, 16)
        self.up = nn.ConvTranspose2d(16, 12, 2, stride=2)
        self.merge2 = ConvNormRelu(12 + 16, 10)
        self.merge1 = ConvNormRelu(10 + 8, 8)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip1 = self.down1(x)
        skip2 = self.down2(F.max_pool2d(skip1, 2))
        x = self.up(self.bottom(F.max_pool2d(skip2, 2)))
        x = self.merge2(torch.cat([skip2, x], dim=1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.merge1(torch.cat([x, skip1], dim=1)))


@graph(expect_cut=True, reason="all levels and the skips between them")
def concat_unet() -> Net:
    return UNet(), image()


class FeaturePyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([ConvNormRelu(3, 8, stride=2), ConvNormRelu(8, 12, stride=2)])
        self.laterals = nn.ModuleList([nn.Conv2d(8, 10, 1), nn.Conv2d(12, 10, 1)])
        self.outputs = nn.ModuleList([nn.Conv2d(10, 6, 3, padding=1) for _ in range(2)])
        self.head = nn.Conv2d(6, 3, 1)

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        top = self.laterals[1](features[1])
        side = self.laterals[0](features[0])
        side = side + F.interpolate(top, size=side.shape[-2:], mode="nearest")
        return [self.head(output(level)) for output, level in zip(self.outputs, (side, top), strict=True)]


@graph(
    expect_cut=True, reason="stages, summed laterals, and the channels that one head reads from two writers"
)
def concat_feature_pyramid() -> Net:
    return FeaturePyramid(), image(size=16)


class PartialConv(nn.Module):
    """A literal share of the channels is convolved, the rest passes by."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.conv(x[:, :4]), x[:, 4:]], dim=1)


@graph(expect_cut=True, reason="the layer behind the pattern at least")
def concat_slice_literal() -> Net:
    return image_net(PartialConv(), ConvNormRelu(16, 12), out_width=12), image()


class PartialConvAttribute(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_convolved = width // 4
        self.conv = nn.Conv2d(self.num_convolved, self.num_convolved, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        head, tail = x[:, : self.num_convolved], x[:, self.num_convolved :]
        return torch.cat((self.conv(head), tail), dim=1)


@graph(expect_cut=True, reason="the channels that pass by, and with the attribute also the others")
def concat_slice_attribute() -> Net:
    return image_net(PartialConvAttribute(16)), image()


class UnevenSplit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Conv2d(6, 8, 3, padding=1)
        self.large = nn.Conv2d(10, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        small, large = torch.split(x, [6, 10], dim=1)
        return self.small(small) * self.large(large)


@graph(expect_cut=True, reason="the product's channels")
def concat_split_literal() -> Net:
    return image_net(UnevenSplit(), out_width=8), image()


class SplitByAttribute(nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.convs = nn.ModuleList([nn.Conv2d(size, size, 3, padding=1, groups=size) for size in sizes])

    def forward(self, x: Tensor) -> Tensor:
        parts = x.split(self.sizes, dim=1)
        return torch.cat([conv(part) for conv, part in zip(self.convs, parts, strict=True)], 1)


@graph(expect_cut=True, reason="the layer behind the pattern at least; the parts too if the list is mended")
def concat_split_attribute() -> Net:
    return image_net(SplitByAttribute([8, 5, 3]), ConvNormRelu(16, 12), out_width=12), image()


class CrossStage(nn.Module):
    """Half of the channels by chunk take a detour (CSP)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(ConvNormRelu(width // 2, 12), ConvNormRelu(12, width // 2))

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        return torch.cat([left, right, self.block(right)], 1)


@graph(expect_cut=True, reason="the detour's inside; an equal number of both halves")
def concat_cross_stage() -> Net:
    return image_net(CrossStage(16), out_width=24), image()


class IndexedChannels(nn.Module):
    """Reads single channels by number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = ConvNormRelu(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y * x[:, 3].unsqueeze(1) + x[:, [0]]


@graph(expect_cut=True, reason="the layer behind the pattern at least")
def concat_channel_index() -> Net:
    return image_net(IndexedChannels(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class TwiceTheSame(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, -x], dim=1)


@graph(expect_cut=True, reason="each channel with both of its places in the reader (CReLU)")
def concat_twice() -> Net:
    return image_net(TwiceTheSame(), nn.ReLU(), out_width=32), image()


class InputConcat(nn.Module):
    """The raw input joins the features again."""

    def __init__(self) -> None:
        super().__init__()
        self.features = ConvNormRelu(3, 12)
        self.head = nn.Conv2d(15, 5, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([self.features(x), x], 1))


@graph(expect_cut=True, reason="the features; the input's places in the reader stay")
def concat_with_input() -> Net:
    return InputConcat(), image()


class Coordinates(nn.Module):
    """Two channels of pixel coordinates are appended (CoordConv)."""

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.linspace(-1, 1, x.shape[2], dtype=x.dtype, device=x.device)
        columns = torch.linspace(-1, 1, x.shape[3], dtype=x.dtype, device=x.device)
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).expand(x.shape[0], -1, -1, -1)
        return torch.cat([grid, x], dim=1)


@graph(expect_cut=True, reason="the channels behind the two coordinates")
def concat_coordinates() -> Net:
    return image_net(Coordinates(), out_width=18), image()
