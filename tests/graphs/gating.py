"""Nets whose pattern multiplies channels by something computed from them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, image, image_net, token_net, tokens
from graphs.registry import Net, graph


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, hidden: int, gate: nn.Module) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, hidden, 1)
        self.expand = nn.Conv2d(hidden, width, 1)
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.expand(F.relu(self.reduce(scale))))


@graph(expect_cut=True, reason="the channels with their gates, and the squeezed ones")
def gate_squeeze_excite() -> Net:
    return image_net(SqueezeExcite(16, 8, nn.Sigmoid())), image()


@graph(expect_cut=True, reason="the channels with their gates, and the squeezed ones")
def gate_squeeze_excite_hardsigmoid() -> Net:
    return image_net(
        ConvNormRelu(12, 12, groups=12), SqueezeExcite(12, 6, nn.Hardsigmoid()), width=12
    ), image()


class LinearSqueezeExcite(nn.Module):
    """Squeeze and excitation with linear layers and views by unpacked sizes."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(width, width // reduction, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(width // reduction, width, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, _, _ = x.size()
        scale = x.mean(dim=(2, 3)).view(batch, channels)
        return x * self.fc(scale).view(batch, channels, 1, 1).expand_as(x)


@graph(expect_cut=True, reason="the channels with their gates, and the squeezed ones")
def gate_squeeze_excite_linear() -> Net:
    return image_net(LinearSqueezeExcite(16, 2)), image()


class EfficientChannelAttention(nn.Module):
    """A one-dimensional convolution runs over the channels, so each needs its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, kernel_size=3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scale = F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(1, 2)
        scale = self.conv(scale).transpose(1, 2).unsqueeze(-1)
        return x * scale.sigmoid()


@graph(expect_cut=True, reason="the layer behind the pattern; the gated channels depend on their neighbours")
def gate_channel_conv() -> Net:
    return image_net(EfficientChannelAttention(), ConvNormRelu(16, 12), out_width=12), image()


class SpatialAttention(nn.Module):
    """Mean and maximum over the channels (CBAM)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.mean(x, dim=1, keepdim=True)
        largest, _ = torch.max(x, dim=1, keepdim=True)
        return x * torch.sigmoid(self.conv(torch.cat([mean, largest], dim=1)))


@graph(expect_cut=True, reason="the layer behind the pattern; mean and maximum count every channel")
def gate_spatial_attention() -> Net:
    return image_net(SpatialAttention(), ConvNormRelu(16, 12), out_width=12), image()


class GatedByChunk(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, 2 * hidden)
        self.project = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.expand(x).chunk(2, dim=-1)
        return self.project(value * F.gelu(gate))


@graph(expect_cut=True, reason="value and gate together")
def gate_by_chunk() -> Net:
    return token_net(GatedByChunk(16, 12)), tokens()


@graph(expect_cut=True, reason="value and gate together")
def gate_by_glu() -> Net:
    return token_net(nn.Linear(16, 24), nn.GLU(dim=-1), out_width=12), tokens()


class FunctionalGlu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, dim=1)


@graph(expect_cut=True, reason="value and gate together")
def gate_by_functional_glu() -> Net:
    return image_net(FunctionalGlu(), width=24, out_width=12), image()


class SwiGlu(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


@graph(expect_cut=True, reason="the stream, and the hidden channels of both projections")
def gate_swiglu() -> Net:
    return token_net(SwiGlu(16, 20), SwiGlu(16, 20)), tokens()


class Maxout(nn.Module):
    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        return x.view(batch, channels // self.pieces, self.pieces, height, width).amax(dim=2)


@graph(expect_cut=True, reason="whole sets of pieces: the maximum of zeros is zero")
def gate_maxout() -> Net:
    return image_net(nn.Conv2d(12, 24, 3, padding=1), Maxout(3), width=12, out_width=8), image()


class SelectiveKernel(nn.Module):
    """Two branches weighed per channel by a softmax over the branches."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Conv2d(width, width, 3, padding=d, dilation=d) for d in (1, 2)])
        self.squeeze = nn.Linear(width, hidden)
        self.excite = nn.Linear(hidden, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.stack([branch(x) for branch in self.branches], dim=1)
        pooled = features.sum(dim=1).mean(dim=(2, 3))
        weights = self.excite(F.relu(self.squeeze(pooled)))
        weights = weights.view(x.shape[0], 2, -1).softmax(dim=1)
        return (features * weights[..., None, None]).sum(dim=1)


@graph(expect_cut=True, reason="the channels that enter, the squeezed ones, and those that leave")
def gate_selective_kernel() -> Net:
    return image_net(SelectiveKernel(12, 8), nn.ReLU(), width=12), image()


class ChannelSoftmax(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).softmax(dim=1)


@graph(expect_cut=True, reason="the channels before the softmax; the exponential of zero is one")
def gate_channel_softmax() -> Net:
    return image_net(ChannelSoftmax(12), width=12), image()


class GramAttention(nn.Module):
    """Channels attend to channels (dual attention network)."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.size()
        flat = x.view(batch, channels, -1)
        energy = torch.bmm(flat, flat.permute(0, 2, 1))
        energy = torch.max(energy, -1, keepdim=True)[0].expand_as(energy) - energy
        out = torch.bmm(torch.softmax(energy, dim=-1), flat).view(batch, channels, height, width)
        return self.strength * out + x


@graph(expect_cut=True, reason="the layer behind the pattern; a silent channel still weighs in the softmax")
def gate_gram_attention() -> Net:
    return image_net(GramAttention(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class SpatialSoftmax(nn.Module):
    """Pixels weighed per channel; a silent channel gets even weights times zero."""

    def forward(self, x: Tensor) -> Tensor:
        weights = x.flatten(2).softmax(dim=-1).view_as(x)
        return x * weights


@graph(expect_cut=True, reason="every channel: it multiplies its own softmax")
def gate_spatial_softmax() -> Net:
    return image_net(SpatialSoftmax()), image()


class MeanOverChannels(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = ConvNormRelu(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) - x.mean(1, keepdim=True)


@graph(expect_cut=True, reason="the layer behind the pattern; the mean divides by the number of channels")
def gate_channel_mean() -> Net:
    return image_net(MeanOverChannels(12), ConvNormRelu(12, 10), width=12, out_width=10), image()


class SumOverChannels(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(1, 8, 3, padding=1)
        self.layer = nn.Conv2d(width, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.head(x.sum(dim=1, keepdim=True)) + self.layer(x))


@graph(expect_cut=True, reason="the summed channels: a zero adds nothing")
def gate_channel_sum() -> Net:
    return image_net(SumOverChannels(12), width=12, out_width=8), image()
