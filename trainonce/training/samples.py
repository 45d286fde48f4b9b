"""What can be trained on: takes tensors, data sets or loaders of torch, gives numbered samples that come in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

from trainonce.noise import seed_everything
from trainonce.reading import read_batches
from trainonce.training.limits import BadSetting

Draw = tuple[Tensor, int]
"""Sample numbers, and a seed for what is random about them."""


@runtime_checkable
class Samples(Protocol):
    """Numbered samples that come in batches."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets for each draw."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TensorSamples:
    """Inputs and targets that are tensors, in memory."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows of both tensors."""
        for samples, _ in draws:
            yield self.inputs[samples], self.targets[samples]


@dataclass(frozen=True, slots=True, eq=False)
class DatasetSamples:
    """A map-style data set of torch, read by `num_workers` processes; its own transforms run seeded by batch."""

    dataset: Dataset[Any]
    collate: Callable[[list[Any]], Any]
    num_workers: int

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Any, Any]]:
        """What the data set gives, put together."""
        yield from read_batches(_Drawing(self), draws, num_workers=self.num_workers)


class _Drawing(Dataset[Any]):
    """A draw in, a batch out."""

    def __init__(self, samples: DatasetSamples) -> None:
        self.samples = samples

    def __getitem__(self, draw: Any) -> Any:
        numbers, seed = draw
        seed ^= int(numbers[0])
        if get_worker_info() is not None:
            # Which process reads a batch is chance; here the streams belong to the batch, and to nobody else.
            seed_everything(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.samples.collate([self.samples.dataset[number] for number in numbers.tolist()])


def as_samples(data: Any, what: str) -> Samples:
    """Samples from a pair of tensors, a data set, a loader or what is samples already; `what` names it in an error."""
    if isinstance(data, DataLoader):
        return _from_dataset(data.dataset, data.collate_fn, data.num_workers, what)
    if isinstance(data, Dataset):
        return _from_dataset(data, default_collate, 0, what)
    if isinstance(data, Samples):
        return data
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        inputs, targets = data
        if len(inputs) != len(targets):
            raise BadSetting(f"the {what} data has {len(inputs)} inputs and {len(targets)} targets. Give one target for each input.")
        return _not_empty(TensorSamples(inputs, targets), what)
    raise BadSetting(f"the {what} data is a {type(data).__name__}. Give a pair of tensors, a torch Dataset or a DataLoader.")


def split_data(data: Any) -> tuple[Samples, Samples]:
    """Training and validation samples of what `fit` was given: an object with both, or a pair."""
    if hasattr(data, "train") and hasattr(data, "validation"):
        return as_samples(data.train, "training"), as_samples(data.validation, "validation")
    if isinstance(data, tuple | list) and len(data) == 2:
        return as_samples(data[0], "training"), as_samples(data[1], "validation")
    raise BadSetting(f"data must be a pair (training, validation), got {type(data).__name__}. Each is a Dataset, a loader or two tensors.")


def _from_dataset(dataset: Any, collate: Callable[[list[Any]], Any], num_workers: int, what: str) -> Samples:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise BadSetting(
            f"the {what} data has no length, so no run could go on at the right sample. Give a Dataset with __len__ and __getitem__."
        )
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2 and collate is default_collate:
        return _not_empty(TensorSamples(*dataset.tensors), what)
    return _not_empty(DatasetSamples(dataset, collate, num_workers), what)


def _not_empty(samples: Samples, what: str) -> Samples:
    if len(samples) < 2:
        raise BadSetting(f"the {what} data has {len(samples)} samples. At least two are needed.")
    return samples
