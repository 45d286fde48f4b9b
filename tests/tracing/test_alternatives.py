"""Methods that can stand in for `forward` still can after a cut: the sizes that only they read follow."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs import GRAPHS
from graphs.sizes import SplitInAnotherMethod
from trainonce.tracing.capture.alternatives import find_alternatives


def halved(model: nn.Module, example: Tensor, seed: int = 0) -> nn.Module:
    partition = trainonce.inspect(model, example)
    return trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5, seed=seed))


@pytest.mark.parametrize("seed", range(3))
def test_another_method_computes_what_forward_does_after_a_cut(seed: int) -> None:
    model, example = GRAPHS["size_split_in_another_method"].build()
    assert isinstance(example, Tensor)
    block = halved(model, example, seed).eval()[0]
    assert isinstance(block, SplitInAnotherMethod)
    assert 2 * block.half == block.widen[0].out_channels < 12
    with torch.no_grad():
        assert torch.equal(block.forward_split(example), block(example))


class Disagreeing(SplitInAnotherMethod):
    """The other method is another function: nothing says that it has to fit the cut."""

    def forward_split(self, x: Tensor) -> Tensor:
        return 2 * super().forward_split(x)


class Failing(SplitInAnotherMethod):
    def forward_split(self, x: Tensor) -> Tensor:
        raise RuntimeError(f"not for {self.half} channels")


class WithMore(SplitInAnotherMethod):
    """What takes other inputs can't stand in."""

    def forward_split(self, x: Tensor, width: int | None = None) -> Tensor:
        return super().forward_split(x)


@pytest.mark.parametrize("kind", [Disagreeing, Failing, WithMore])
def test_a_method_that_is_no_substitute_changes_nothing(kind: type[SplitInAnotherMethod]) -> None:
    block, example = kind(12), torch.randn(2, 3, 8, 8)
    assert find_alternatives(block.eval(), example) == {}
    plain = SplitInAnotherMethod(12)
    assert [group.name for group in trainonce.inspect(block, example).groups] == [
        group.name for group in trainonce.inspect(plain, example).groups
    ]
    halved(block, example)
    assert block.half == 6


def test_looking_for_substitutes_leaves_the_model_as_it_was() -> None:
    class Counting(SplitInAnotherMethod):
        calls = 0

        def forward_split(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.widen[1].running_mean.add_(1)
            return super().forward_split(x)

    block, example = Counting(12).eval(), torch.randn(2, 3, 8, 8)
    before, random = {name: item.clone() for name, item in block.state_dict().items()}, torch.get_rng_state()
    find_alternatives(block, example)
    assert block.calls == 0
    assert not block._forward_hooks
    assert not block._forward_pre_hooks
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], item) for name, item in block.state_dict().items())


def test_a_substitute_costs_nothing() -> None:
    class Plain(SplitInAnotherMethod):
        forward_split = None  # type: ignore[assignment]

    example = torch.randn(1, 3, 8, 8)
    assert (
        trainonce.inspect(SplitInAnotherMethod(12), example).macs
        == trainonce.inspect(Plain(12), example).macs
    )


def test_a_model_without_substitutes_is_not_run() -> None:
    class Loud(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            raise AssertionError("it ran")

    assert find_alternatives(nn.Sequential(Loud(4, 4), nn.ReLU()), torch.randn(1, 4)) == {}
