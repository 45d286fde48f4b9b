"""Nets whose pattern is where a size comes from: an attribute, a literal, a shape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, image, image_net, token_net, tokens
from graphs.registry import Net, graph


class PoolAndFlatten(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(x), 1))


@graph(expect_cut=True, reason="both layers; pooling leaves one number per channel")
def size_pool_and_flatten() -> Net:
    return nn.Sequential(ConvNormRelu(3, 12), ConvNormRelu(12, 10), PoolAndFlatten(10)), image()


@graph(expect_cut=True, reason="each channel with its 16 places in the reader")
def size_spatial_flatten() -> Net:
    model = nn.Sequential(
        ConvNormRelu(3, 8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 12), nn.ReLU(), nn.Linear(12, 4)
    )
    return model, image()


class FlattenByAttribute(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = ConvNormRelu(3, width)
        self.flat = width * 16
        self.fc = nn.Linear(self.flat, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.max_pool2d(self.conv(x), 2).view(-1, self.flat))


@graph(expect_cut=True, reason="each channel with its 16 places, and the stored product of sizes")
def size_flatten_attribute() -> Net:
    return FlattenByAttribute(8), image()


class FlattenByLiteral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 6, 3, padding=1)
        self.fc1 = nn.Linear(6 * 4 * 4, 12)
        self.fc2 = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = x.view(-1, 6 * 4 * 4)
        return self.fc2(F.relu(self.fc1(x)))


@graph(expect_cut=True, reason="the first convolution and the hidden layer; the literal keeps the second")
def size_flatten_literal() -> Net:
    return FlattenByLiteral(), image()


class Seeded(nn.Module):
    """A vector is reshaped into a small image of a stored width (generators)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.linear = nn.Linear(6, width * 4)
        self.conv = nn.ConvTranspose2d(width, 8, 2, stride=2)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.linear(x)).view(x.shape[0], self.width, 2, 2)
        return self.out(F.relu(self.conv(x)))


@graph(expect_cut=True, reason="the transposed convolution's outputs, and the seed's width in blocks of four")
def size_seeded_image() -> Net:
    return Seeded(12), torch.randn(2, 6)


class ReshapeByLiteral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 16)
        self.out = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.linear(x)).reshape(x.shape[0], x.shape[1], 4, 4)
        return self.out(x.amax(dim=2))


@graph(expect_cut=True, reason="the channels that enter; the literals keep those inside")
def size_reshape_literal() -> Net:
    return token_net(ReshapeByLiteral(), width=12, out_width=8), tokens()


class GroupsInView(nn.Module):
    """The number of groups is the model's own attribute and shapes a view too."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.conv = nn.Conv2d(width, width, 3, padding=1, groups=groups)
        self.scale = nn.Parameter(torch.ones(groups, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        batch, channels, height, width = x.shape
        x = x.view(batch, self.groups, channels // self.groups, height, width) * self.scale
        return x.view(batch, channels, height, width)


@graph(expect_cut=True, reason="an equal number in each group")
def size_groups_in_view() -> Net:
    return image_net(GroupsInView(16, 4)), image()


class ScaleFromAttribute(nn.Module):
    """One attribute shapes a view and scales the result: it can't change."""

    def __init__(self, width: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x).view(*x.shape[:-1], -1, self.head_dim)
        return F.relu(x * self.head_dim**-0.5).flatten(-2)


@graph(expect_cut=True, reason="blocks of the head's size, or single channels of the layers around")
def size_scale_from_attribute() -> Net:
    return token_net(ScaleFromAttribute(16, 4)), tokens()


class Config:
    def __init__(self, width: int) -> None:
        self.hidden_size = width
        self.num_heads = 4


class SizesInConfig(nn.Module):
    """Sizes live in a configuration object that isn't a module."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, 12)
        self.end = nn.Linear(12, 16)

    def forward(self, x: Tensor) -> Tensor:
        heads, size = self.config.num_heads, self.config.hidden_size
        q, k, v = self.qkv(x).split(size, dim=-1)
        q, k, v = (t.view(*t.shape[:-1], heads, size // heads).transpose(1, 2) for t in (q, k, v))
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(*x.shape[:-1], size)
        return self.end(F.relu(self.out(x)))


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def size_in_config() -> Net:
    return token_net(SizesInConfig(Config(16))), tokens()


class ClosureSize(nn.Module):
    """The size is known only to a closure."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.split = lambda x: x.reshape(*x.shape[:-1], width // 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.split(self.linear(x))).flatten(-2)


@graph(expect_cut=True, reason="the channels that enter at least")
def size_in_closure() -> Net:
    return token_net(ClosureSize(16)), tokens()


class ProductOfAttributes(nn.Module):
    """Two attributes give one size; either could change."""

    def __init__(self, in_features: int, rows: int, columns: int) -> None:
        super().__init__()
        self.rows = rows
        self.columns = columns
        self.linear = nn.Linear(in_features, rows * columns)
        self.out = nn.Linear(rows, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.linear(x)).view(x.shape[0], x.shape[1], self.rows, self.columns)
        return self.out(x.sum(dim=-1))


@graph(expect_cut=True, reason="the channels that enter; rows or columns inside")
def size_product_of_attributes() -> Net:
    return token_net(ProductOfAttributes(12, 6, 4), width=12, out_width=8), tokens()


class SizeInTuple(nn.Module):
    """A whole shape is stored as a tuple."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.shape = (3, 4)
        self.linear = nn.Linear(in_features, 12)
        self.scale = nn.Parameter(torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x).unflatten(-1, self.shape) * self.scale
        return F.relu(x).flatten(-2)


@graph(expect_cut=True, reason="the channels that enter; one axis of the shape inside")
def size_in_tuple() -> Net:
    return token_net(SizeInTuple(16), out_width=12), tokens()


class ExpandBySize(nn.Module):
    """A pooled vector is expanded back to a stored size and joined."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.context = nn.Linear(width, width)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        context = self.context(x.mean(dim=1)).unsqueeze(1).expand(-1, x.shape[1], self.width)
        return torch.cat([x, F.relu(context)], dim=-1)


@graph(expect_cut=True, reason="the channels that enter, and the context's if the size is mended")
def size_expand() -> Net:
    return token_net(ExpandBySize(12), width=12, out_width=24), tokens()


class MadeApart(nn.Module):
    """A table of fixed size takes its type and device from the features (anchors of a detector)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        table = x.new_full((height * width, 1), 0.5) + x.new_ones(1, 4)
        return self.read(x).flatten(2).transpose(1, 2) * table


@graph(expect_cut=True, reason="the features: tables of other sizes don't hold their channels")
def size_made_apart() -> Net:
    return nn.Sequential(ConvNormRelu(3, 12), MadeApart(12)), image()


class SplitInAnotherMethod(nn.Module):
    """`forward` cuts its channels in two; another method, for exporters, does so by a stored width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.half = width // 2
        self.widen = ConvNormRelu(3, width)
        self.left = ConvNormRelu(self.half, self.half)
        self.read = nn.Conv2d(width, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.widen(x).chunk(2, 1)
        return self.read(torch.cat((self.left(left), right), 1))

    def forward_split(self, x: Tensor) -> Tensor:
        left, right = self.widen(x).split((self.half, self.half), 1)
        return self.read(torch.cat((self.left(left), right), 1))


@graph(expect_cut=True, reason="as many channels in both halves, and the stored width with them")
def size_split_in_another_method() -> Net:
    return nn.Sequential(SplitInAnotherMethod(12)), image()
