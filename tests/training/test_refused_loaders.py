"""DataLoaders that can't be repeated exactly are refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils import data as torch_data
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from support.numbered import DATA, Numbers
from support.runs import make_net
from trainonce.errors import SettingError
from trainonce.training import fit
from trainonce.training.batches.sources import as_source


class OwnSampler(torch_data.Sampler):
    def __iter__(self) -> Any:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


class OwnOrder(SubsetRandomSampler):
    pass


class OwnLoader(DataLoader):
    """Gives a part of the batches, scaled."""

    def __iter__(self) -> Any:
        return (2 * inputs for inputs, _ in zip(super().__iter__(), range(2), strict=False))


REFUSED = {
    "own sampler": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=OwnSampler()),
        "training",
        "OwnSampler",
    ),
    "own subset": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=OwnOrder([1, 2])),
        "training",
        "OwnOrder",
    ),
    "own loader": (
        lambda: OwnLoader(Numbers(), batch_size=2),
        "training",
        "OwnLoader with its own __iter__",
    ),
    "too long": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=torch_data.SequentialSampler(range(30))),
        "training",
        "30 samples",
    ),
    "more than once": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=RandomSampler(Numbers(), num_samples=50)),
        "training",
        "draws 50 of 20 samples per epoch",
    ),
    "own batches": (
        lambda: DataLoader(Numbers(), batch_sampler=torch_data.BatchSampler(OwnSampler(), 2, False)),
        "training",
        "custom batch_sampler",
    ),
    "no batches": (lambda: DataLoader(Numbers(), batch_size=None), "training", "batch_size=None"),
    "distributed": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=torch_data.DistributedSampler(Numbers(), 2, 0)),
        "training",
        "DistributedSampler",
    ),
    "weights in validation": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=WeightedRandomSampler([1.0] * 20, 20)),
        "validation",
        "WeightedRandomSampler",
    ),
    "chance in validation": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=RandomSampler(Numbers(), replacement=True)),
        "validation",
        "at random",
    ),
    "dropped by chance": (
        lambda: DataLoader(Numbers(), batch_size=3, shuffle=True, drop_last=True),
        "validation",
        "drop_last",
    ),
    "too many draws": (
        lambda: DataLoader(
            Numbers(),
            batch_size=2,
            sampler=WeightedRandomSampler([1.0] * 5 + [0.0] * 15, 9, replacement=False),
        ),
        "training",
        "without replacement",
    ),
    "wrong weights": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=WeightedRandomSampler([1.0] * 7, 9)),
        "training",
        "7 weights",
    ),
    "negative weights": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=WeightedRandomSampler([-1.0] * 20, 9)),
        "training",
        "negative or not finite",
    ),
    "outside": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=SubsetRandomSampler([1, 20])),
        "training",
        "index 20",
    ),
    "one sample": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=SubsetRandomSampler([1])),
        "training",
        "1 samples",
    ),
}


@pytest.mark.parametrize("kind", list(REFUSED))
def test_what_can_not_be_repeated_exactly_is_refused_in_one_line(kind: str):
    make, what, words = REFUSED[kind]
    with pytest.raises(SettingError, match=words) as caught:
        as_source(make(), what)
    assert "\n" not in str(caught.value)
    assert what in str(caught.value)


def test_a_loader_without_a_batch_size_is_refused():
    with pytest.raises(SettingError, match="batches of 1 sample"):
        fit(make_net(), (DataLoader(DATA), DataLoader(DATA)), keep_flops=0.5, quiet=True)
