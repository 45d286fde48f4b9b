"""DataLoaders that can't be repeated exactly are refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
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
from trainonce.training.batches.order import Order
from trainonce.training.batches.sources import as_source


class OwnSampler(torch_data.Sampler):
    def __iter__(self) -> Any:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


class NoLength(torch_data.Sampler):
    def __iter__(self) -> Any:
        return iter(range(5))


class Outside(OwnSampler):
    def __iter__(self) -> Any:
        return iter(range(16, 21))


class Twice(OwnSampler):
    def __iter__(self) -> Any:
        return iter([1, 2, 2, 3, 4])


class Failing(OwnSampler):
    def __iter__(self) -> Any:
        raise RuntimeError("the disk is gone")


class Shorter(OwnSampler):
    """Gives less in later epochs."""

    count = 6

    def __iter__(self) -> Any:
        self.count -= 1
        return iter(range(self.count))


class Stream(torch_data.IterableDataset):
    def __iter__(self) -> Any:
        return iter([])

    def __len__(self) -> int:
        return 20


class OwnLoader(DataLoader):
    """Gives a part of the batches, scaled."""

    def __iter__(self) -> Any:
        return (2 * inputs for inputs, _ in zip(super().__iter__(), range(2), strict=False))


REFUSED = {
    **{
        kind: (lambda make=make: DataLoader(Numbers(), batch_size=2, sampler=make()), what, words)
        for kind, make, what, words in (
            ("no length", NoLength, "training", "NoLength without a length"),
            ("outside of the data", Outside, "training", "Outside must give numbers from 0 to 19"),
            ("own failure", Failing, "training", "Failing has failed .*the disk is gone"),
            ("twice in validation", Twice, "validation", "Twice gives samples more than once"),
        )
    },
    "no lists": (
        lambda: DataLoader(Numbers(), batch_sampler=OwnSampler()),
        "training",
        "OwnSampler must give lists of numbers",
    ),
    "a stream": (
        lambda: DataLoader(Stream(), batch_size=2),
        "training",
        r"Stream, which can't be indexed.*trainonce\.attach",
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
    "no batches": (lambda: DataLoader(Numbers(), batch_size=None), "training", "batch_size=None"),
    "distributed": (
        lambda: DataLoader(Numbers(), batch_size=2, sampler=torch_data.DistributedSampler(Numbers(), 2, 0)),
        "training",
        "DistributedSampler",
    ),
    "distributed batches": (
        lambda: DataLoader(
            Numbers(),
            batch_sampler=torch_data.BatchSampler(torch_data.DistributedSampler(Numbers(), 2, 0), 2, False),
        ),
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


def test_an_epoch_that_is_shorter_than_the_first_ends_the_run_in_one_line():
    drawing = as_source(DataLoader(Numbers(), batch_size=2, sampler=Shorter()), "training").drawing
    with pytest.raises(SettingError, match="Shorter gave 4 samples in epoch 3 and 5 in the first"):
        Order(torch.arange(20), 2, 0, drawing).batch(2 * 2)


def test_a_loader_without_a_batch_size_is_refused():
    with pytest.raises(SettingError, match="batches of 1 sample"):
        fit(make_net(), (DataLoader(DATA), DataLoader(DATA)), keep_flops=0.5, quiet=True)
