"""A model that chooses its path by data has only been seen on one path: cutting must not break the others."""

import pytest
import torch
from torch import Tensor, nn

import trainonce


class Fork(nn.Module):
    """Positive inputs go one way, negative ones another; both ways read and write the same channels."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(3, 8, 1)
        self.bright, self.dark = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 6, 1)
        self.after = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.before(x).relu()
        chosen = self.bright if x.mean() > 0 else self.dark
        return self.after(chosen(features).relu())


class Model(nn.Module):
    """A fork behind and before ordinary layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 10, 1), nn.ReLU(), nn.Conv2d(10, 3, 1))
        self.fork = Fork()
        self.head = nn.Sequential(nn.Conv2d(2, 12, 1), nn.ReLU(), nn.Conv2d(12, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fork(self.stem(x)))


@pytest.mark.parametrize("build", [Fork, Model])
def test_a_path_that_was_not_seen_still_works_after_the_cut(build: type[nn.Module]):
    torch.manual_seed(0)
    model = build().double().eval()
    images = [sign * torch.rand(1, 3, 4, 4, dtype=torch.double) for sign in (1, -1)]
    plan = trainonce.Plan.random(trainonce.inspect(model, images[0]), keep=0.5)
    trainonce.silence(model, plan)
    before = [model(image) for image in images]
    trainonce.cut(model, plan)
    assert all(
        torch.allclose(model(image), output, rtol=1e-9) for image, output in zip(images, before, strict=True)
    )


def test_layers_outside_the_fork_are_still_cut_and_the_reason_inside_is_told():
    groups = {group.name: group for group in trainonce.inspect(Model().eval(), torch.rand(1, 3, 4, 4)).groups}
    assert groups["stem.0"].kept_because is None
    assert groups["head.0"].kept_because is None
    assert "chooses its path by data" in groups["fork.before"].kept_because
