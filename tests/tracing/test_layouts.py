"""Laws of memory layouts.

Channels last, the fast layout of convolutions, changes nothing of what is found and cut.
"""

import pytest
import torch
from torch import Tensor, nn

import trainonce
from trainonce.zoo.residual import thin_resnet


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 4, 1), nn.ReLU(), nn.Conv2d(4, 12, 1), nn.Sigmoid()
        )
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(12, 5)

    def forward(self, images: Tensor) -> Tensor:
        features = self.stem(images)
        return self.head(self.pool(features * self.gate(features)).flatten(1))


class Transposing(nn.Module):
    """Tells a square tensor strides that exchange its axes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = torch.relu(self.first(rows))
        hidden.as_strided_((4, 4), (1, 4))
        return self.second(hidden)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize(
    "build",
    [
        SqueezeExcite,
        lambda: thin_resnet(8, 10),
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveMaxPool2d(1)),
    ],
)
def test_channels_last_finds_and_cuts_the_same(build, batch_size: int):
    model, images = build().double().eval(), torch.randn(batch_size, 3, 16, 16, dtype=torch.double)
    plain = trainonce.inspect(model, images)
    model, images = (
        model.to(memory_format=torch.channels_last),
        images.contiguous(memory_format=torch.channels_last),
    )
    partition = trainonce.inspect(model, images)
    described = [
        [(group.name, group.num_channels, group.kept_because) for group in found.groups]
        for found in (plain, partition)
    ]
    assert described[0] == described[1]
    if any(group.kept_because is None for group in partition.groups):
        plan = trainonce.Plan.random(partition, keep=0.5, seed=0)
        trainonce.silence(model, plan)
        before = model(images)
        trainonce.cut(model, plan)
        torch.testing.assert_close(model(images), before, rtol=0, atol=1e-12)


def test_strides_that_exchange_axes_are_kept():
    model = Transposing().double().eval()
    partition = trainonce.inspect(model, torch.randn(4, 6, dtype=torch.double))
    assert "as_strided_" in str(
        next(group.kept_because for group in partition.groups if group.name == "first")
    )
