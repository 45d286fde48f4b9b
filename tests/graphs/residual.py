"""Nets whose pattern is a sum of branches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, image, image_net
from graphs.registry import Net, graph


class BasicBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            conv = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


@graph(expect_cut=True, reason="the stream and the inside of each block")
def residual_chain() -> Net:
    return image_net(BasicBlock(16, 16), BasicBlock(16, 16), BasicBlock(16, 16)), image()


@graph(expect_cut=True, reason="two streams, joined by a downsampling convolution")
def residual_downsample() -> Net:
    return image_net(BasicBlock(12, 12), BasicBlock(12, 20, stride=2), width=12, out_width=20), image()


class PreActivationBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.bn1(x)))
        return x + self.conv2(F.relu(self.bn2(out)))


@graph(
    expect_cut=True, reason="the inside of each block; the stream too, as the norms' affine can be silenced"
)
def residual_preactivation() -> Net:
    return image_net(PreActivationBlock(16), PreActivationBlock(16)), image()


class ZeroPadShortcut(nn.Module):
    """ResNet's option A: the shortcut skips pixels and pads channels with zeros."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.layer = ConvNormRelu(in_channels, out_channels, stride=2)
        self.conv = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.pad = (out_channels - in_channels) // 2

    def forward(self, x: Tensor) -> Tensor:
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(self.conv(self.layer(x)) + shortcut)


@graph(expect_cut=True, reason="the inside of the block at least")
def residual_zero_pad() -> Net:
    return image_net(ZeroPadShortcut(8, 16), BasicBlock(16, 16), width=8, out_width=16), image()


class StochasticDepth(nn.Module):
    def __init__(self, block: nn.Module, survival: float) -> None:
        super().__init__()
        self.block = block
        self.survival = survival

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x + self.block(x)
        noise = torch.empty(x.shape[0], 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(self.survival)
        return x + self.block(x) * noise / self.survival


@graph(expect_cut=True, reason="the stream and the inside of the block")
def residual_stochastic_depth() -> Net:
    block = nn.Sequential(ConvNormRelu(12, 20), nn.Conv2d(20, 12, 3, padding=1))
    return image_net(StochasticDepth(block, 0.8), width=12), image()


class Highway(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Conv2d(width, width, 1)
        self.value = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * self.value(x) + (1 - gate) * x


@graph(expect_cut=True, reason="the stream: a gate times zero is zero on both sides")
def residual_highway() -> Net:
    return image_net(Highway(16)), image()


class LayerScale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.expand = nn.Conv2d(width, 2 * width, 1)
        self.project = nn.Conv2d(2 * width, width, 1)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gamma * self.project(F.gelu(self.expand(self.depthwise(x))))


@graph(expect_cut=True, reason="the stream with its depthwise filters and scales, and the hidden channels")
def residual_layer_scale() -> Net:
    return image_net(LayerScale(12), LayerScale(12), width=12), image()


class WeightedSum(nn.Module):
    """Branches joined by learned, normalised weights, one per branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [nn.Conv2d(width, width, size, padding=size // 2) for size in (1, 3, 5)]
        )
        self.weights = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        weights = F.softmax(self.weights, dim=0)
        return sum(weight * branch(x) for weight, branch in zip(weights, self.branches, strict=True))


@graph(expect_cut=True, reason="the channels that enter and those that leave the sum")
def residual_weighted_branches() -> Net:
    return image_net(WeightedSum(16), nn.ReLU()), image()


class StackedSum(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Conv2d(width, width, 3, padding=1)
        self.right = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.left(x), self.right(x), x], dim=0).sum(dim=0)


@graph(expect_cut=True, reason="all three summands share one set of channels")
def residual_stack_sum() -> Net:
    return image_net(StackedSum(16), nn.ReLU()), image()


class BroadcastSum(nn.Module):
    """A one-channel map added to all channels: those channels aren't zero any more."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = ConvNormRelu(width, width)
        self.shared = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.shared(x)


@graph(expect_cut=True, reason="the channels before the sum; those behind it aren't silent")
def residual_broadcast_map() -> Net:
    return image_net(BroadcastSum(12), width=12), image()


class DetachedBranch(nn.Module):
    """A branch that autograd doesn't see, but the output does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = ConvNormRelu(width, width)
        self.branch = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            guide = self.branch(x.detach())
        return self.layer(x) + guide


@graph(expect_cut=True, reason="both sides of the sum, the detached one as well")
def residual_detached_branch() -> Net:
    return image_net(DetachedBranch(12), width=12), image()
