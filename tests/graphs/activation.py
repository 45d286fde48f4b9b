"""Nets whose pattern is pointwise: does zero stay zero?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, image, image_net, token_net, tokens
from graphs.registry import Net, graph


def between_layers(*pattern: nn.Module) -> nn.Module:
    """The pattern between two ordinary layers; the second is certain to lose channels."""
    return image_net(nn.Conv2d(12, 10, 3, padding=1), *pattern, ConvNormRelu(10, 8), width=12, out_width=8)


@graph(expect_cut=True, reason="the layers around it; sigmoid(0) = 0.5 reaches the reader")
def act_sigmoid() -> Net:
    return between_layers(nn.Sigmoid()), image()


@graph(expect_cut=True, reason="the layers around it; exp(0) = 1")
def act_exp() -> Net:
    class Exponential(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(-x.abs())

    return between_layers(Exponential()), image()


@graph(expect_cut=True, reason="the layers around it; cos(0) = 1")
def act_cos() -> Net:
    class Cosine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.cos()

    return between_layers(Cosine()), image()


@graph(expect_cut=True, reason="the layers around it; zero becomes one")
def act_clamp_from_one() -> Net:
    class ClampFromOne(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.clamp(min=1)

    return between_layers(ClampFromOne()), image()


@graph(expect_cut=True, reason="all channels: the interval holds zero")
def act_clamp_around_zero() -> Net:
    class ClampAroundZero(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.clamp(x, -0.5, 0.5)

    return between_layers(ClampAroundZero()), image()


@graph(expect_cut=True, reason="the layers around it; the constant isn't silent")
def act_plus_constant() -> Net:
    class PlusConstant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 0.7

    return between_layers(PlusConstant()), image()


@graph(expect_cut=True, reason="the layers around it; the vector isn't silent")
def act_plus_buffer() -> Net:
    class PlusBuffer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("offsets", torch.linspace(-1, 1, 10))

        def forward(self, x: Tensor) -> Tensor:
            return x + 0.3 * self.offsets.view(-1, 1, 1)

    return between_layers(PlusBuffer()), image()


@graph(expect_cut=True, reason="the layers around it; the channels too if the buffer is cut with them")
def act_times_buffer() -> Net:
    class TimesBuffer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scales", torch.linspace(0.5, 2, 10).view(1, -1, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scales

    return between_layers(TimesBuffer()), image()


@graph(expect_cut=True, reason="the layers around it; a tensor that is no buffer can't be cut", on_meta=False)
def act_times_plain_tensor() -> Net:
    class TimesPlainTensor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = torch.linspace(0.5, 2, 10).view(1, -1, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scales.to(x)

    return between_layers(TimesPlainTensor()), image()


@graph(expect_cut=True, reason="all channels: scale and offset are parameters and can be silenced")
def act_learned_affine() -> Net:
    class LearnedAffine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1, 10, 1, 1))
            self.offset = nn.Parameter(torch.zeros(1, 10, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale + self.offset

    return between_layers(LearnedAffine(), nn.ReLU()), image()


@graph(expect_cut=True, reason="all channels; one offset for all would not be silent, a scale is")
def act_scalar_parameters() -> Net:
    class ScalarScale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) ** 2 * self.scale

    return between_layers(ScalarScale()), image()


@graph(expect_cut=True, reason="the layers around it; the offset parameter is shared by all channels")
def act_scalar_offset() -> Net:
    class ScalarOffset(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offset = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) + self.offset

    return between_layers(ScalarOffset()), image()


@graph(expect_cut=True, reason="the layers around it; softplus(0) = log 2")
def act_softplus() -> Net:
    return between_layers(nn.Softplus()), image()


@graph(expect_cut=True, reason="all channels: each of these maps zero to zero")
def act_through_zero() -> Net:
    return between_layers(
        nn.LeakyReLU(), nn.ELU(), nn.Mish(), nn.Hardswish(), nn.Tanh(), nn.Softsign()
    ), image()


@graph(expect_cut=True, reason="all channels; dropout takes whole ones, but only in training")
def act_dropout() -> Net:
    return between_layers(nn.ReLU(), nn.Dropout2d(0.3), nn.Dropout(0.1)), image()


@graph(expect_cut=True, reason="the layers around it; where x is zero, one is chosen")
def act_where() -> Net:
    class Where(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 0, x, torch.ones_like(x))

    return between_layers(Where()), image()


@graph(expect_cut=True, reason="the layers around it; 1 / (1 + 0) = 1")
def act_reciprocal() -> Net:
    class Reciprocal(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 1 / (1 + x.square())

    return between_layers(Reciprocal()), image()


@graph(expect_cut=True, reason="the layers around it; zero to the power of zero is one")
def act_power_zero() -> Net:
    class Powers(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x**0 * 0.5 + x**2

    return between_layers(Powers()), image()


@graph(expect_cut=True, reason="all channels: zero over one is zero")
def act_quotient() -> Net:
    class Quotient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.upper = nn.Conv2d(10, 10, 1)
            self.lower = nn.Conv2d(10, 10, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.upper(x) / self.lower(x).exp()

    return between_layers(Quotient()), image()


@graph(
    expect_cut=True, reason="the hidden layers: padding with a value that isn't zero comes before the reader"
)
def act_padding_value() -> Net:
    return image_net(
        nn.ConstantPad2d(1, 0.5), nn.Conv2d(12, 10, 3), nn.ReLU(), ConvNormRelu(10, 8), width=12, out_width=8
    ), image()


@graph(expect_cut=True, reason="the hidden channels: zero rounds to zero")
def act_rounding() -> Net:
    class Rounding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + (x.round() - x).detach()

    return token_net(nn.Linear(16, 12), Rounding(), nn.Linear(12, 16), nn.ReLU()), tokens()
