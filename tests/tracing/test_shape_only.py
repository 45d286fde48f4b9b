"""A run without values shows what a full one shows, or says that it can't."""

import pytest
import torch
from torch import Tensor, nn

import trainonce
from trainonce.tracing.capture.record import record
from trainonce.tracing.state.recording import Recording
from trainonce.tracing.state.tracer import ValueNeededError

WIDTH = 24


class Asking(nn.Module):
    """Two layers, with something between them that may look at values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.second = nn.Conv2d(WIDTH, 5, 3)
        self.register_buffer("seen", torch.zeros(WIDTH))

    def between(self, features: Tensor) -> Tensor:
        return features

    def forward(self, image: Tensor) -> Tensor:
        return self.second(self.between(self.norm(self.first(image)).relu()))


class Plain(Asking):
    pass


class Branching(Asking):
    def between(self, features: Tensor) -> Tensor:
        return features * 2 if features.mean() > 1e3 else features


class Sorting(Asking):
    def between(self, features: Tensor) -> Tensor:
        order = features.mean(dim=(0, 1, 3)).argsort()
        return features[:, :, order]


class Masking(Asking):
    def between(self, features: Tensor) -> Tensor:
        rows = features[features > 0.5]
        return features + rows.sum()


class Comparing(Asking):
    def between(self, features: Tensor) -> Tensor:
        return features if torch.equal(features, features.abs()) else features * 3


class Leaving(Asking):
    def between(self, features: Tensor) -> Tensor:
        return features * float(features.detach().mean(dim=(1, 2, 3)).numpy()[0])


class Remembering(Asking):
    def between(self, features: Tensor) -> Tensor:
        self.seen.copy_(features.detach().mean(dim=(0, 2, 3)))
        return features


class ReadingStatistics(Asking):
    def between(self, features: Tensor) -> Tensor:
        return features * (1 + (self.norm.running_mean.sum().item() if self.training else 0))


class Swallowing(Asking):
    def between(self, features: Tensor) -> Tensor:
        try:
            return features * 2 if features.mean().item() > 1e3 else features
        except Exception:
            return features + 1


ASKING = (Branching, Sorting, Masking, Comparing, Leaving, Remembering, Swallowing)


def example() -> Tensor:
    return torch.randn(2, 3, 40, 40, generator=torch.Generator().manual_seed(0))


def recorded(model: nn.Module, *, with_values: bool) -> Recording:
    recording = Recording()
    record(model, example(), recording, counts_cost=True, with_values=with_values)
    return recording


@pytest.mark.parametrize("training", [False, True])
def test_a_model_that_asks_for_nothing_is_recorded_without_values(training: bool) -> None:
    model = Plain().train(training)
    cheap, full = recorded(model, with_values=False), recorded(model, with_values=True)
    assert cheap.slots.keys() == full.slots.keys()
    assert cheap.writers == full.writers
    assert [product.sizes for product in cheap.products] == [product.sizes for product in full.products]


@pytest.mark.parametrize("kind", ASKING)
def test_a_model_that_asks_for_a_value_is_not_recorded_without(kind: type[Asking]) -> None:
    with pytest.raises(ValueNeededError):
        recorded(kind().eval(), with_values=False)


def test_statistics_written_by_a_batch_norm_have_no_values() -> None:
    with pytest.raises(ValueNeededError):
        recorded(ReadingStatistics().train(), with_values=False)


@pytest.mark.parametrize("kind", [Plain, *ASKING, ReadingStatistics])
def test_whatever_it_asks_the_cut_is_exact_and_the_state_is_untouched(kind: type[Asking]) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    partition = trainonce.inspect(model, example())
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    plan = trainonce.Plan.random(partition, keep=0.5, seed=0)
    trainonce.silence(model, plan)
    before = model(example())
    trainonce.cut(model, plan)
    assert torch.allclose(model(example()), before, atol=1e-5)


def test_a_second_run_recalls_the_labels_of_the_first() -> None:
    model, recording = Plain().eval(), Recording()
    record(model, example(), recording, counts_cost=True, with_values=False)
    num_labels, num_ties, num_answers = (
        recording.book.num_labels,
        recording.book.num_ties,
        len(recording.answers),
    )
    record(model, example(), recording, counts_cost=False, with_values=False)
    assert (recording.book.num_labels, recording.book.num_ties) == (num_labels, num_ties)
    assert len(recording.answers) == num_answers > 0
