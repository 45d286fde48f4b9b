"""Training data as `fit` takes it: tensors, torch Datasets and DataLoaders, turned into `Samples`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from trainonce.data.sample_rng import seed_everything
from trainonce.data.samples import Draw, Samples
from trainonce.data.workers import read_batches
from trainonce.errors import SettingError
from trainonce.training.batches.loaders import read_loader
from trainonce.training.batches.order import Drawing
from trainonce.training.batches.own_order import OwnDrawing


@dataclass(frozen=True, slots=True, eq=False)
class TensorSamples:
    """Inputs and targets in memory: tensors, or tuples and dicts of tensors."""

    inputs: Any
    targets: Any

    def __len__(self) -> int:
        return len(_tensors_in(self.inputs)[0])

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Any, Any]]:
        """The rows of each draw."""
        for samples, _ in draws:
            yield tree_map(lambda tensor: tensor[samples], (self.inputs, self.targets))  # noqa: B023


@dataclass(frozen=True, slots=True, eq=False)
class DatasetSamples:
    """A map-style Dataset, read by `num_workers` processes; its transforms are seeded per batch."""

    dataset: Dataset[Any]
    collate: Callable[[list[Any]], Any]
    num_workers: int
    start_worker: Callable[[int], Any] | None = None
    """Called once in each worker with its index."""

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Any, Any]]:
        """The collated samples of each draw."""
        yield from read_batches(_Drawing(self), draws, num_workers=self.num_workers)


class _Drawing(Dataset[Any]):
    """A data set whose items are whole batches, indexed by draws."""

    def __init__(self, samples: DatasetSamples) -> None:
        self.samples = samples
        self._has_started = False

    def __getitem__(self, draw: Any) -> Any:
        numbers, seed = draw
        seed ^= int(numbers[0])
        worker = get_worker_info()
        if worker is not None:
            if self.samples.start_worker is not None and not self._has_started:
                self.samples.start_worker(worker.id)
            self._has_started = True
            # Which worker reads a batch is chance, so the seed belongs to the batch, not to the worker.
            seed_everything(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.samples.collate([self.samples.dataset[number] for number in numbers.tolist()])


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Samples, and how their DataLoader draws them."""

    samples: Samples
    drawing: Drawing | OwnDrawing | None = None
    """Replaces one pass over all samples per epoch."""

    batch_size: int | None = None
    """The DataLoader's batch size, if there was one."""


def as_source(data: Any, what: str) -> Source:
    """Samples from a pair of tensors, a Dataset, a DataLoader or Samples; `what` names the data in errors."""
    if isinstance(data, DataLoader):
        _check_length(data.dataset, what)
        visit = read_loader(data, what)
        samples = _from_dataset(
            visit.dataset, data.collate_fn, data.num_workers, what, start_worker=data.worker_init_fn
        )
        return Source(samples, visit.drawing, visit.batch_size)
    if isinstance(data, Dataset):
        return Source(_from_dataset(data, default_collate, 0, what))
    if isinstance(data, Samples):
        return Source(data)
    if isinstance(data, tuple | list) and len(data) == 2 and all(_tensors_in(part) for part in data):
        return Source(_from_tensors(data[0], data[1], what))
    raise SettingError(
        f"the {what} data is a {type(data).__name__}. Pass a pair of tensors, a torch Dataset or a "
        "DataLoader."
    )


def as_samples(data: Any, what: str) -> Samples:
    """The samples alone."""
    return as_source(data, what).samples


def split_data(data: Any) -> tuple[Source, Source]:
    """Training and validation samples of a pair, or of an object with `train` and `validation`."""
    if hasattr(data, "train") and hasattr(data, "validation"):
        return as_source(data.train, "training"), as_source(data.validation, "validation")
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise SettingError(
            f"data must be a pair (training, validation), got {type(data).__name__}. Each is a Dataset, a "
            "DataLoader or two tensors."
        )
    if all(isinstance(part, Tensor) for part in data):
        raise SettingError(
            "data is two tensors. Pass two pairs: ((inputs, targets), (validation inputs, validation "
            "targets))."
        )
    return as_source(data[0], "training"), as_source(data[1], "validation")


def first_batch(samples: Samples, count: int, what: str) -> tuple[Any, Any]:
    """The first samples as a batch; SettingError unless it is a pair (inputs, targets)."""
    batch = next(iter(samples.batches([(torch.arange(count), 0)])))
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        found = f"{len(batch)} parts" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
        raise SettingError(
            f"a batch of the {what} data is {found}. Return pairs (inputs, targets); put several inputs into "
            "a tuple or a dict."
        )
    return batch[0], batch[1]


def count_samples(inputs: Any, targets: Any) -> int | None:
    """Number of samples in a batch; None if it can't be told."""
    for part in (targets, inputs):
        if isinstance(part, Tensor):
            return len(part) if part.dim() else 1
    if isinstance(targets, tuple | list) and not all(isinstance(item, Tensor) for item in targets):
        # Dicts or strings, one per sample.
        return len(targets)
    tensors = [leaf for leaf in tree_leaves((inputs, targets)) if isinstance(leaf, Tensor) and leaf.dim()]
    return len(tensors[0]) if tensors else None


def _from_tensors(inputs: Any, targets: Any, what: str) -> Samples:
    lengths = [
        [len(tensor) if tensor.dim() else 1 for tensor in _tensors_in(part)] for part in (inputs, targets)
    ]
    if len({*lengths[0], *lengths[1]}) > 1:
        raise SettingError(
            f"the {what} data has {lengths[0][0]} inputs and {lengths[1][0]} targets. Pass one target per "
            "input."
        )
    return _not_empty(TensorSamples(inputs, targets), what)


def _tensors_in(part: Any) -> list[Tensor]:
    """The tensors of a nested structure; empty if it holds anything else."""
    leaves = tree_leaves(part)
    return leaves if all(isinstance(leaf, Tensor) for leaf in leaves) else []


def _check_length(dataset: Any, what: str) -> None:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise SettingError(
            f"the {what} data is a {type(dataset).__name__}, which can't be indexed, so a "
            "run could not resume at the right sample. Pass a Dataset with __len__ and "
            "__getitem__, or prune in your own loop with trainonce.attach."
        )


def _from_dataset(
    dataset: Any,
    collate: Callable[[list[Any]], Any],
    num_workers: int,
    what: str,
    *,
    start_worker: Callable[[int], Any] | None = None,
) -> Samples:
    _check_length(dataset, what)
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2 and collate is default_collate:
        return _not_empty(TensorSamples(*dataset.tensors), what)
    return _not_empty(DatasetSamples(dataset, collate, num_workers, start_worker), what)


def _not_empty(samples: Samples, what: str) -> Samples:
    if len(samples) < 2:
        raise SettingError(f"the {what} data has {len(samples)} samples. At least 2 are needed.")
    return samples
