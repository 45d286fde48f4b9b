"""Uses of a channel that are easy to overlook.

In training only, outside torch, in unusual outputs, by index.
"""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.width = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 4, 1), 16


class NoiseInTraining(TwoLayers):
    """A literal width that only training meets."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(x))
        if self.training:
            y = y * torch.bernoulli(torch.full((1, 16, 1, 1), 0.9))
        return self.second(y)


class FeaturesInTraining(TwoLayers):
    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        y = F.relu(self.first(x))
        return (self.second(y), y) if self.training else self.second(y)


class ThroughLists(TwoLayers):
    """Zeros of silent channels take part in the maximum."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y) * max(y[0, :, 0, 0].tolist())


class ThroughNumpy(TwoLayers):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y) * torch.from_numpy(y.detach().numpy().max(1, keepdims=True))


@dataclass(slots=True)
class Named:
    features: Tensor
    logits: Tensor


class NamedOutput(TwoLayers):
    def forward(self, x: Tensor) -> Named:
        y = self.first(x)
        return Named(y, self.second(y))


class ParityOfWidth(TwoLayers):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y) * (1 if int(y.shape[1]) % 2 else 2)


class DividedByCount(TwoLayers):
    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(x))
        return self.second(y) / y.numel()


@pytest.mark.parametrize(
    "build",
    [
        NoiseInTraining,
        FeaturesInTraining,
        ThroughLists,
        ThroughNumpy,
        NamedOutput,
        ParityOfWidth,
        DividedByCount,
    ],
)
def test_a_channel_with_such_a_use_is_kept(build: type[nn.Module]):
    groups = {group.name: group for group in trainonce.inspect(build(), torch.randn(2, 3, 8, 8)).groups}
    assert groups["first"].kept_because


class LastToken(nn.Module):
    """Positions are picked by an input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.second(hidden[torch.arange(hidden.shape[0]), lengths - 1])


class Scaled(nn.Module):
    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x) * self.scale)


def shared_buffer() -> nn.Module:
    scale = torch.rand(16)
    return nn.Sequential(nn.Linear(6, 16), Scaled(scale), Scaled(scale), nn.Linear(16, 4))


@pytest.mark.parametrize(
    ("build", "example"),
    [(LastToken, (torch.randn(2, 9, 6), torch.tensor([3, 5]))), (shared_buffer, torch.randn(2, 6))],
)
def test_indices_and_shared_buffers_do_not_stop_inspection(build, example):
    model = build().eval()
    partition = trainonce.inspect(model, example)
    plan = trainonce.Plan.random(partition, keep=0.5)
    arguments = example if isinstance(example, tuple) else (example,)
    trainonce.silence(model, plan)
    before = model(*arguments)
    trainonce.cut(model, plan)
    assert torch.allclose(model(*arguments), before, atol=1e-5)
    assert partition.groups[0].kept_because is None


def test_groups_that_share_a_chunk_are_not_offered_apart():
    class Chunked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.branch, self.head = nn.Conv2d(3, 16, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(16, 4, 1)

        def unit(self, x: Tensor) -> Tensor:
            left, right = x.chunk(2, 1)
            return torch.cat([left, F.relu(self.branch(right))], 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.unit(self.unit(F.relu(self.stem(x)))))

    model = Chunked().eval()
    partition = trainonce.inspect(model, torch.randn(2, 3, 8, 8))
    for group in partition.prunable_groups:
        mask = torch.ones(group.num_channels)
        mask[0] = 0
        assert trainonce.Plan.from_masks(partition, {group.name: mask}).kept
