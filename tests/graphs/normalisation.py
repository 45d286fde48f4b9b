"""Nets whose pattern is a norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, Mlp, image, image_net, token_net, tokens
from graphs.registry import Net, graph


class ChannelsLastNorm(nn.Module):
    """LayerNorm behind a permute, then back (ConvNeXt)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width, 20)

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.mlp(self.norm(y))
        return x + y.permute(0, 3, 1, 2)


@graph(expect_cut=True, reason="the hidden layer; the norm runs over the stream")
def norm_channels_last() -> Net:
    return image_net(ChannelsLastNorm(12), width=12), image()


class FunctionalLayerNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.normalized_shape = (width,)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, 1e-6)
        return x.permute(0, 3, 1, 2)


@graph(expect_cut=True, reason="the layer behind the pattern")
def norm_functional_layer_norm() -> Net:
    return image_net(FunctionalLayerNorm(12), ConvNormRelu(12, 10), width=12, out_width=10), image()


class LayerNormByHand(nn.Module):
    """Mean and variance over the channels-first axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


@graph(expect_cut=True, reason="the layer behind the pattern")
def norm_layer_norm_by_hand() -> Net:
    return image_net(LayerNormByHand(12), ConvNormRelu(12, 10), width=12, out_width=10), image()


class RmsNormByHand(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class PreNormMlp(nn.Module):
    def __init__(self, width: int, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.mlp = Mlp(width, 20)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


@graph(expect_cut=True, reason="the hidden layer; the mean of squares counts every channel of the stream")
def norm_rms_by_hand() -> Net:
    return token_net(PreNormMlp(12, RmsNormByHand(12)), width=12), tokens()


@graph(expect_cut=True, reason="the hidden layer")
def norm_rms_module() -> Net:
    return token_net(PreNormMlp(12, nn.RMSNorm(12)), width=12), tokens()


@graph(expect_cut=True, reason="the layer behind the pattern; statistics run over sets of four channels")
def norm_group() -> Net:
    return image_net(nn.GroupNorm(4, 16), nn.ReLU(), ConvNormRelu(16, 12), out_width=12), image()


class GroupNormBlock(nn.Module):
    """Whole norm groups can go, if the number of groups follows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, 16, 3, padding=1)
        self.norm = nn.GroupNorm(8, 16)
        self.conv2 = nn.Conv2d(16, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.silu(self.norm(self.conv1(x))))


@graph(expect_cut=True, reason="the stream, and whole groups of the norm")
def norm_group_residual() -> Net:
    return image_net(GroupNormBlock(12), width=12), image()


@graph(expect_cut=True, reason="the layer behind the pattern; one group is a norm over all")
def norm_single_group() -> Net:
    return image_net(nn.GroupNorm(1, 12), nn.ReLU(), ConvNormRelu(12, 10), width=12, out_width=10), image()


@graph(expect_cut=True, reason="every channel: one group each")
def norm_group_per_channel() -> Net:
    return image_net(
        nn.Conv2d(12, 10, 3, padding=1), nn.GroupNorm(10, 10), nn.ReLU(), width=12, out_width=10
    ), image()


@graph(expect_cut=True, reason="every channel, silenced by weight and bias")
def norm_instance_affine() -> Net:
    layers = (nn.Conv2d(12, 10, 3, padding=1), nn.InstanceNorm2d(10, affine=True), nn.ReLU())
    return image_net(*layers, width=12, out_width=10), image()


@graph(expect_cut=True, reason="every channel: a silent image stays silent")
def norm_instance_plain() -> Net:
    return image_net(
        nn.Conv2d(12, 10, 3, padding=1), nn.InstanceNorm2d(10), nn.ReLU(), width=12, out_width=10
    ), image()


@graph(expect_cut=True, reason="the layer behind the pattern; running means shift the silent channels")
def norm_batch_without_affine() -> Net:
    layers = (
        nn.Conv2d(12, 10, 3, padding=1),
        nn.BatchNorm2d(10, affine=False),
        nn.ReLU(),
        ConvNormRelu(10, 8),
    )
    return image_net(*layers, width=12, out_width=8), image()


@graph(expect_cut=True, reason="both hidden layers")
def norm_batch_behind_linear() -> Net:
    model = nn.Sequential(
        nn.Linear(6, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 12),
        nn.BatchNorm1d(12),
        nn.ReLU(),
        nn.Linear(12, 4),
    )
    return model, torch.randn(3, 6)


@graph(expect_cut=True, reason="all channels; the one slope stays")
def norm_prelu_shared() -> Net:
    return image_net(nn.Conv2d(16, 12, 3, padding=1), nn.PReLU(), out_width=12), image()


@graph(expect_cut=True, reason="all channels with their slopes")
def norm_prelu_per_channel() -> Net:
    return image_net(nn.Conv2d(16, 12, 3, padding=1), nn.PReLU(12), out_width=12), image()


class UnitLength(nn.Module):
    """Vectors over the channels brought to length one: a zero adds nothing to the length."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1)


@graph(expect_cut=True, reason="the layer behind the pattern at least")
def norm_unit_length() -> Net:
    return image_net(UnitLength(), ConvNormRelu(16, 12), out_width=12), image()


class FrozenNorm(nn.Module):
    """Batch norm as four buffers (detection models)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(0.5, 1.5, width))
        self.register_buffer("bias", torch.linspace(-1.0, 1.0, width))
        self.register_buffer("running_mean", torch.linspace(-0.3, 0.4, width))
        self.register_buffer("running_var", torch.linspace(0.7, 1.3, width))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.reshape(1, -1, 1, 1)
        scale = weight * (self.running_var.reshape(1, -1, 1, 1) + 1e-5).rsqrt()
        offset = self.bias.reshape(1, -1, 1, 1) - self.running_mean.reshape(1, -1, 1, 1) * scale
        return x * scale + offset


@graph(expect_cut=True, reason="the layer behind the pattern at least; a fixed offset isn't silent")
def norm_frozen_buffers() -> Net:
    return image_net(
        nn.Conv2d(12, 10, 3, padding=1), FrozenNorm(10), nn.ReLU(), ConvNormRelu(10, 8), width=12, out_width=8
    ), image()


@graph(expect_cut=True, reason="the layer behind the pattern; each channel is divided by its neighbours")
def norm_local_response() -> Net:
    return image_net(nn.LocalResponseNorm(3, alpha=0.1), ConvNormRelu(16, 12), out_width=12), image()


class ResponseNorm(nn.Module):
    """Global response norm over channels-last features (ConvNeXt v2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(1, 1, 1, width))
        self.beta = nn.Parameter(torch.zeros(1, 1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        energy = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        share = energy / (energy.mean(dim=-1, keepdim=True) + 1e-6)
        return (self.gamma * (x * share) + self.beta + x).permute(0, 3, 1, 2)


@graph(expect_cut=True, reason="the layer behind the pattern; the mean counts every channel")
def norm_global_response() -> Net:
    return image_net(ResponseNorm(12), ConvNormRelu(12, 10), width=12, out_width=10), image()
