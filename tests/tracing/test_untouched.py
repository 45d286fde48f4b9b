"""What `inspect` and `cut` leave as they found it.

The example, counters, hooks, and the possibility to train.
"""

import pytest
import torch
from torch import Tensor, nn

import trainonce


def small_net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = small_net()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layers(x)


def test_inspect_leaves_integer_buffers():
    model = Counting()
    trainonce.inspect(model, torch.randn(2, 6))
    assert model.calls == 0


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = small_net()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.sub_(1).mul_(2))


def test_the_example_is_not_written_to():
    example = torch.randn(2, 6)
    before = example.clone()
    model = InPlace().eval()
    partition = trainonce.inspect(model, example)
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5))
    assert torch.equal(example, before)
    assert partition.prunable_groups


def test_the_proof_of_a_cut_fires_no_gradient_hooks():
    model, example = small_net(), torch.randn(2, 6)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5)
    fired = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(fired.append)
    trainonce.cut(model, plan)
    assert fired == []


def test_a_model_cut_in_inference_mode_can_be_trained():
    model, example = small_net(), torch.randn(2, 6)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5)
    with torch.inference_mode():
        trainonce.cut(model, plan)
    model(example).sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.shape == parameter.shape
        for parameter in model.parameters()
    )


@pytest.mark.parametrize(
    "misuse",
    [
        lambda model, plan, partition: trainonce.cut(model, None),
        lambda model, plan, partition: trainonce.cut(model, partition),
        lambda model, plan, partition: trainonce.cut(model, plan, optimizer="adam"),
        lambda model, plan, partition: trainonce.silence([model], plan),
        lambda model, plan, partition: trainonce.inspect(model, torch.randn(2, 6), protect=[0]),
        lambda model, plan, partition: trainonce.Plan.random(partition, keep="half"),
        lambda model, plan, partition: trainonce.Plan.from_masks(partition, {"0": [1] * 16}),
        lambda model, plan, partition: trainonce.Plan.from_masks(
            partition, {"0": torch.full((16,), torch.nan)}
        ),
    ],
)
def test_misuse_is_told_in_one_line(misuse):
    model = small_net()
    partition = trainonce.inspect(model, torch.randn(2, 6))
    with pytest.raises(ValueError, match=r"\. [A-Z0-9]") as refusal:
        misuse(model, trainonce.Plan.random(partition, keep=0.5), partition)
    assert "\n" not in str(refusal.value)
