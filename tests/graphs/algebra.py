"""Nets whose pattern is a product or a transform written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, Mlp, image, image_net, token_net, tokens
from graphs.registry import Net, graph


class EinsumLayer(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(torch.einsum("...i,io->...o", x, self.weight))


@graph(expect_cut=True, reason="both sides of the weight")
def algebra_einsum() -> Net:
    return token_net(EinsumLayer(16, 12), out_width=12), tokens()


class MatmulLayer(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight + self.bias)


@graph(expect_cut=True, reason="both sides of the weight")
def algebra_matmul() -> Net:
    return token_net(MatmulLayer(16, 12), out_width=12), tokens()


class FunctionalLinear(nn.Module):
    """One parameter read by slices, as two weights."""

    def __init__(self, in_features: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden, in_features))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(F.linear(x, self.weight))
        return F.linear(hidden, self.weight.t())


@graph(expect_cut=True, reason="the hidden channels and the stream, on one weight used both ways")
def algebra_functional_linear() -> Net:
    return token_net(FunctionalLinear(16, 12)), tokens()


class AddmmLayer(nn.Module):
    """A linear layer with its weight the other way round (GPT-2's Conv1D)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.nf = out_features
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor) -> Tensor:
        size = (*x.size()[:-1], self.nf)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size)


@graph(expect_cut=True, reason="both sides of the weight, with the stored size mended")
def algebra_addmm() -> Net:
    return token_net(AddmmLayer(16, 12), nn.GELU(), AddmmLayer(12, 16)), tokens()


class BilinearLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, 8)
        self.right = nn.Linear(width, 8)
        self.bilinear = nn.Bilinear(8, 8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bilinear(self.left(x), self.right(x)))


@graph(expect_cut=True, reason="the channels that enter, and the layer behind")
def algebra_bilinear() -> Net:
    return token_net(BilinearLayer(12), Mlp(10, 16), width=12, out_width=10), tokens()


class OuterProduct(nn.Module):
    """Every channel of one side times every channel of the other (bilinear pooling)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, 4)
        self.right = nn.Linear(width, 5)
        self.out = nn.Linear(20, 8)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.left(x), self.right(x)
        return self.out((left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2))


@graph(expect_cut=True, reason="the channels that enter, and those behind it")
def algebra_outer_product() -> Net:
    return token_net(OuterProduct(12), width=12, out_width=8), tokens()


class SpectralFilter(nn.Module):
    """A learned filter on the tokens' spectrum; channels stay apart (GFNet)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.complex_weight = nn.Parameter(torch.randn(length // 2 + 1, width, 2))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x, dim=1, norm="ortho")
        spectrum = spectrum * torch.view_as_complex(self.complex_weight)
        return torch.fft.irfft(spectrum, n=x.shape[1], dim=1, norm="ortho")


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def algebra_spectral_filter() -> Net:
    return token_net(SpectralFilter(9, 12), Mlp(12, 16), width=12), tokens()


class ChannelSpectrum(nn.Module):
    """A transform that mixes the channels themselves (FNet)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


@graph(expect_cut=True, reason="the hidden layer behind it; every channel of the transform needs all others")
def algebra_channel_spectrum() -> Net:
    return token_net(ChannelSpectrum(), Mlp(12, 16), width=12), tokens()


class CosineClassifier(nn.Module):
    """Both the features and the weights are brought to length one."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.features = Mlp(width, 16)
        self.weight = nn.Parameter(torch.randn(num_classes, width))

    def forward(self, x: Tensor) -> Tensor:
        return 5 * F.linear(F.normalize(self.features(x), dim=-1), F.normalize(self.weight, dim=-1))


@graph(expect_cut=True, reason="the hidden layer, and the channels that enter")
def algebra_cosine_classifier() -> Net:
    return nn.Sequential(nn.Linear(6, 12), CosineClassifier(12, 5)), tokens()


class LowRank(nn.Module):
    """The weight is a product of two parameters, plus a frozen one (LoRA)."""

    def __init__(self, in_features: int, out_features: int, rank: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.linear.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, in_features))
        self.up = nn.Parameter(torch.zeros(out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.linear.weight + self.up @ self.down, self.linear.bias)


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def algebra_low_rank() -> Net:
    return token_net(LowRank(12, 12, 3), Mlp(12, 16), width=12), tokens()


class BatchedExperts(nn.Module):
    """All experts in one batched product."""

    def __init__(self, width: int, hidden: int, num_experts: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.first = nn.Parameter(torch.randn(num_experts, width, hidden))
        self.second = nn.Parameter(torch.randn(num_experts, hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1).expand(self.num_experts, -1, -1)
        out = torch.bmm(F.relu(torch.bmm(flat, self.first)), self.second)
        return out.sum(dim=0).view(x.shape)


@graph(expect_cut=True, reason="the hidden channels that all experts share, and the stream")
def algebra_batched_experts() -> Net:
    return token_net(BatchedExperts(12, 8, 2), width=12), tokens()


class Distances(nn.Module):
    """Distances to learned centres (radial basis functions)."""

    def __init__(self, width: int, num_centres: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(num_centres, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(-torch.cdist(x, self.centres.unsqueeze(0)).square() * 0.05)


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def algebra_distances() -> Net:
    return token_net(Distances(12, 10), Mlp(10, 16), width=12, out_width=10), tokens()


class GramMatrix(nn.Module):
    """Products of all pairs of channels are the output (style loss)."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(2)
        return torch.einsum("bip,bjp->bij", flat, flat)


@graph(expect_cut=True, reason="the stem; the Gram matrix is the output, so its channels stay")
def algebra_gram_output() -> Net:
    return nn.Sequential(ConvNormRelu(3, 12), nn.Conv2d(12, 6, 1), GramMatrix()), image()


@graph(expect_cut=True, reason="the summed-out channels: the positions' Gram matrix sums over them")
def algebra_position_gram() -> Net:
    class PositionGram(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            flat = x.flatten(2)
            return flat.transpose(1, 2) @ flat

    return nn.Sequential(ConvNormRelu(3, 12), nn.Conv2d(12, 10, 1), PositionGram()), image(size=4)


@graph(expect_cut=True, reason="the channels on both sides of the correlation")
def algebra_correlation() -> Net:
    class Correlation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Conv2d(12, 10, 1)
            self.right = nn.Conv2d(12, 10, 1)

        def forward(self, x: Tensor) -> Tensor:
            volume = (self.left(x).flatten(2).transpose(1, 2) @ self.right(x).flatten(2)) * 0.3
            return volume.view(x.shape[0], -1, *x.shape[2:])

    return image_net(Correlation(), width=12, out_width=16), image(size=4)
