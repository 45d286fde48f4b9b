"""Nets whose pattern is a kind of convolution."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from graphs.necks import ConvNormRelu, image, image_net
from graphs.registry import Net, graph


@graph(expect_cut=True, reason="an equal number in each of the four groups")
def conv_grouped() -> Net:
    return image_net(nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.ReLU()), image()


@graph(expect_cut=True, reason="an equal number in each group, inputs and outputs counted apart")
def conv_grouped_widening() -> Net:
    return image_net(
        ConvNormRelu(12, 24, groups=3), ConvNormRelu(24, 8, groups=2), width=12, out_width=8
    ), image()


class ResNeXtBlock(nn.Module):
    def __init__(self, width: int, inner: int, groups: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            ConvNormRelu(inner, inner, groups=groups),
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.layers(x))


@graph(expect_cut=True, reason="the stream, and an equal number per group inside")
def conv_grouped_residual() -> Net:
    return image_net(ResNeXtBlock(16, 24, 4), ResNeXtBlock(16, 24, 4)), image()


@graph(expect_cut=True, reason="each channel with its own filter")
def conv_depthwise() -> Net:
    return image_net(ConvNormRelu(16, 16, groups=16)), image()


@graph(expect_cut=True, reason="each channel with the three that it becomes")
def conv_depthwise_multiplier() -> Net:
    return image_net(nn.Conv2d(8, 24, 3, padding=1, groups=8), nn.ReLU(), width=8, out_width=24), image()


class InvertedResidual(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.Hardswish(),
            nn.Conv2d(hidden, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


@graph(expect_cut=True, reason="the stream and the hidden channels")
def conv_inverted_residual() -> Net:
    return image_net(InvertedResidual(12, 24), InvertedResidual(12, 24), width=12), image()


@graph(expect_cut=True, reason="a transposed convolution's weight has its axes the other way round")
def conv_transposed() -> Net:
    return image_net(nn.ConvTranspose2d(16, 12, 4, stride=2, padding=1), nn.ReLU(), out_width=12), image()


@graph(expect_cut=True, reason="an equal number in each group")
def conv_transposed_grouped() -> Net:
    return image_net(nn.ConvTranspose2d(16, 24, 2, stride=2, groups=4), nn.ReLU(), out_width=24), image()


@graph(expect_cut=True, reason="each channel with its own filter")
def conv_transposed_depthwise() -> Net:
    return image_net(nn.ConvTranspose2d(16, 16, 4, stride=2, padding=1, groups=16, bias=False)), image()


class StandardisedConv2d(nn.Conv2d):
    """Each filter is brought to mean zero and variance one before it is used."""

    def forward(self, x: Tensor) -> Tensor:
        mean = self.weight.mean(dim=(1, 2, 3), keepdim=True)
        variance = self.weight.var(dim=(1, 2, 3), keepdim=True, unbiased=False)
        weight = (self.weight - mean) / torch.sqrt(variance + 1e-5)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


@graph(expect_cut=True, reason="its outputs, behind a norm; its inputs take part in the statistics")
def conv_weight_standardised() -> Net:
    layers = (StandardisedConv2d(16, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
    return image_net(*layers, out_width=12), image()


@graph(expect_cut=True, reason="its outputs; its inputs take part in the norms")
def conv_weight_norm() -> Net:
    return image_net(
        parametrizations.weight_norm(nn.Conv2d(16, 12, 3, padding=1)), nn.ReLU(), out_width=12
    ), image()


@graph(expect_cut=True, reason="the layer behind the pattern at least")
def conv_spectral_norm() -> Net:
    conv = parametrizations.spectral_norm(nn.Conv2d(16, 12, 3, padding=1))
    return image_net(conv, nn.ReLU(), ConvNormRelu(12, 10), out_width=10), image()


@graph(expect_cut=True, reason="all channels between the ends")
def conv_one_dimension() -> Net:
    model = nn.Sequential(
        nn.Conv1d(3, 12, 3),
        nn.BatchNorm1d(12),
        nn.ReLU(),
        nn.Conv1d(12, 10, 3, dilation=2),
        nn.ReLU(),
        nn.Conv1d(10, 4, 1),
    )
    return model, torch.randn(2, 3, 12)


@graph(expect_cut=True, reason="all channels between the ends")
def conv_three_dimensions() -> Net:
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(8, 12, 1),
        nn.ReLU(),
        nn.Conv3d(12, 4, 1),
    )
    return model, torch.randn(2, 3, 4, 4, 4)


class FunctionalConv(nn.Module):
    """The model owns the weights and calls the operator itself."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(out_channels, in_channels, 3, 3))
        self.offset = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, self.kernel, bias=self.offset, padding=1))


@graph(expect_cut=True, reason="both sides of the bare parameter")
def conv_functional() -> Net:
    return image_net(FunctionalConv(16, 12), out_width=12), image()


class FunctionalDepthwise(nn.Module):
    """Groups taken from the input's own shape."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(width, 1, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel, padding=1, groups=x.shape[1])


@graph(expect_cut=True, reason="each channel with its own filter")
def conv_functional_depthwise() -> Net:
    return image_net(FunctionalDepthwise(16), nn.ReLU()), image()


class FixedBlur(nn.Module):
    """A fixed filter, expanded to as many channels as there are (anti-aliased pooling)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        row = torch.tensor([1.0, 2.0, 1.0])
        self.width = width
        self.register_buffer("kernel", (torch.outer(row, row) / 16)[None, None].repeat(width, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (1, 1, 1, 1), mode="reflect")
        return F.conv2d(x, self.kernel, stride=2, groups=self.width)


@graph(
    expect_cut=True, reason="the layer behind the pattern at least; the buffer and the attribute can follow"
)
def conv_fixed_blur() -> Net:
    return image_net(FixedBlur(16), ConvNormRelu(16, 12), out_width=12), image()


class CalledTwice(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(F.relu(self.conv(x))))


@graph(expect_cut=True, reason="one set of channels before, between and behind the calls")
def conv_called_twice() -> Net:
    return image_net(CalledTwice(16)), image()


class SharedParameter(nn.Module):
    """Two modules hold the same weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))))


@graph(expect_cut=True, reason="one set of channels before, between and behind the two")
def conv_shared_parameter() -> Net:
    return image_net(SharedParameter(16)), image()


class UnusedModule(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.spare = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.spare_scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


@graph(expect_cut=True, reason="what is used; the unused stays as it is")
def conv_unused_module() -> Net:
    return image_net(UnusedModule(16)), image()


@graph(expect_cut=True, reason="a layer that doesn't train can still lose channels")
def conv_frozen() -> Net:
    frozen = ConvNormRelu(16, 12)
    frozen.requires_grad_(False)
    return image_net(frozen, out_width=12), image()


class DynamicConv(nn.Module):
    """The kernel is a mixture of experts, chosen per image; the batch moves into groups."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, num_experts)
        self.experts = nn.Parameter(torch.randn(num_experts, width, width, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        shares = self.router(x.mean((2, 3))).softmax(dim=-1)
        kernel = (shares @ self.experts.flatten(1)).view(batch * channels, channels, 3, 3)
        out = F.conv2d(x.reshape(1, batch * channels, height, width), kernel, padding=1, groups=batch)
        return out.view(batch, channels, height, width)


@graph(expect_cut=True, reason="the layer behind the pattern at least")
def conv_dynamic() -> Net:
    return image_net(DynamicConv(12, 3), nn.ReLU(), ConvNormRelu(12, 10), width=12, out_width=10), image()
