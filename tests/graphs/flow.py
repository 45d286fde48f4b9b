"""Nets whose pattern is in the Python around the operators, or in operators that nobody knows."""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphs.necks import ConvNormRelu, Mlp, image, image_net, token_net, tokens
from graphs.registry import Net, graph


class SignBranch(nn.Module):
    """The data decide which convolution runs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.positive = nn.Conv2d(width, width, 3, padding=1)
        self.negative = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.positive(x)
        return self.negative(x)


@graph(expect_cut=True, reason="the layer behind the submodule that can't be followed", on_meta=False)
def flow_branch_in_submodule() -> Net:
    return image_net(SignBranch(12), ConvNormRelu(12, 10), width=12, out_width=10), image()


class RootBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(ConvNormRelu(3, 12), ConvNormRelu(12, 10))
        self.head = nn.Conv2d(10, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        if x.mean() > 100:
            x = x * 2
        return self.head(x)


@graph(
    expect_cut=False,
    reason="the branch is in the outermost forward; at worst everything is kept",
    on_meta=False,
)
def flow_branch_in_root() -> Net:
    return RootBranch(), image()


class DataLoop(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = Mlp(width, 20)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(int(x.abs().mean().item() * 4) % 3 + 1):
            x = x + self.mlp(x)
        return x


@graph(expect_cut=True, reason="the layer behind the submodule that can't be followed", on_meta=False)
def flow_data_loop() -> Net:
    return token_net(DataLoop(12), Mlp(12, 16), width=12), tokens()


class BooleanIndex(nn.Module):
    """The number of rows that go on depends on the data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = Mlp(width, 20)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        chosen = x[..., 0] > 0
        out[chosen] = self.mlp(x[chosen])
        return out


@graph(expect_cut=True, reason="the layer behind it at least", on_meta=False)
def flow_boolean_index() -> Net:
    return token_net(BooleanIndex(12), Mlp(12, 16), width=12), tokens()


class Experts(nn.Module):
    """Each token goes to its best expert, found by a loop over experts."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, num_experts)
        self.experts = nn.ModuleList([Mlp(width, 16) for _ in range(num_experts)])

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(dim=-1)
        best = shares.argmax(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = out + expert(x) * shares[..., number : number + 1] * (best == number)
        return out


@graph(expect_cut=True, reason="the hidden layer of every expert, and the channels that enter")
def flow_experts() -> Net:
    return token_net(Experts(12, 3), width=12), tokens()


class AuxiliaryHead(nn.Module):
    """A second head exists only in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormRelu(3, 12)
        self.middle = ConvNormRelu(12, 10)
        self.head = nn.Conv2d(10, 4, 1)
        self.aux = nn.Sequential(ConvNormRelu(12, 8), nn.Conv2d(8, 4, 1))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.stem(x)
        out = self.head(self.middle(x))
        return (out, self.aux(x)) if self.training else out


@graph(expect_cut=True, reason="the middle, and the stem if the head in training loses its inputs too")
def flow_auxiliary_head() -> Net:
    return AuxiliaryHead(), image()


class ScriptedPart(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) * 2.0


@graph(expect_cut=True, reason="the layer behind it at least")
def flow_scripted() -> Net:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        part = torch.jit.script(ScriptedPart())
    return image_net(part, ConvNormRelu(12, 10), width=12, out_width=10), image()


class Checkpointed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(ConvNormRelu(width, 10), nn.Conv2d(10, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + checkpoint(self.block, x, use_reentrant=False)


@graph(
    expect_cut=True, reason="the layer behind it at least; the block too if the checkpoint is seen through"
)
def flow_checkpoint() -> Net:
    return image_net(Checkpointed(12), nn.ReLU(), ConvNormRelu(12, 8), width=12, out_width=8), image()


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        return torch.sign(x) * x.abs().sqrt()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
        return grad


class OwnFunction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return StraightThrough.apply(x)


@graph(expect_cut=True, reason="the layer behind it at least")
def flow_autograd_function() -> Net:
    return image_net(OwnFunction(), ConvNormRelu(12, 10), width=12, out_width=10), image()


@torch.library.custom_op("trainonce_tests::mix_channels", mutates_args=())
def mix_channels(x: Tensor) -> Tensor:
    return x * 0.5 + x.flip(1).cumsum(1) * 0.1


@mix_channels.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


mix_channels.register_autograd(lambda ctx, grad: grad * 0.5)


class UnknownOperator(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return mix_channels(x)


@graph(expect_cut=True, reason="the layer behind it; what the unknown operator reads and writes is kept")
def flow_unknown_operator() -> Net:
    return image_net(UnknownOperator(), ConvNormRelu(12, 10), width=12, out_width=10), image()


@torch.library.custom_op("trainonce_tests::count_channels", mutates_args=())
def count_channels(x: Tensor) -> Tensor:
    return x / x.shape[1] + 0.1


count_channels.register_autograd(lambda ctx, grad: grad)


class OperatorWithoutFake(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return count_channels(x)


@graph(expect_cut=True, reason="the layer behind it; the operator has no shapes without data", on_meta=False)
def flow_operator_without_fake() -> Net:
    return image_net(OperatorWithoutFake(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class ScaledByShape(nn.Module):
    """A number of channels enters the arithmetic."""

    def forward(self, x: Tensor) -> Tensor:
        return x / math.sqrt(x.shape[1])


@graph(
    expect_cut=True, reason="the layer behind it; the square root of the width scales the pattern's channels"
)
def flow_scaled_by_shape() -> Net:
    return image_net(ScaledByShape(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class AssertsWidth(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed_dim = width
        self.linear = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] == self.embed_dim, f"expected {self.embed_dim} channels, got {x.shape[-1]}"
        return F.relu(self.linear(x))


@graph(expect_cut=True, reason="the layer behind the assert at least")
def flow_asserts_width() -> Net:
    return token_net(AssertsWidth(12), width=12, out_width=10), tokens()


class NumpyDetour(nn.Module):
    """Leaves torch for numpy and comes back."""

    def forward(self, x: Tensor) -> Tensor:
        strongest = x.detach().cpu().numpy().max()
        return x / float(strongest)


@graph(expect_cut=True, reason="the layer behind the submodule that can't be followed", on_meta=False)
def flow_numpy_detour() -> Net:
    return image_net(NumpyDetour(), ConvNormRelu(12, 10), width=12, out_width=10), image()


class WidthBranch(nn.Module):
    """A condition on the width: the cut model could take the other path."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] >= 12 else x * 3


@graph(expect_cut=True, reason="the layer behind it; a smaller width would take the other path")
def flow_width_branch() -> Net:
    return image_net(WidthBranch(), ConvNormRelu(12, 10), width=12, out_width=10), image()
