"""A part of a data set: takes samples and a number, gives as many of them, chosen once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from trainonce.data.catalogue import DataSet
from trainonce.data.identity.describing import describe_part
from trainonce.data.samples import Draw, Samples


@dataclass(frozen=True, slots=True, eq=False)
class Fewer:
    """The samples at some indices of others, numbered from 0."""

    samples: Samples
    indices_N: Tensor

    def __len__(self) -> int:
        return len(self.indices_N)

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets for each draw."""
        return self.samples.batches((self.indices_N[chosen], seed) for chosen, seed in draws)

    def describe_identity(self) -> dict[str, Any]:
        """What a resumed run compares: the indices, and what they are of."""
        return describe_part(Subset(self.samples, self.indices_N.tolist()))  # type: ignore


def first_of(samples: Samples, num_samples: int | None) -> Samples:
    """So many samples, the same in every run: the first of a shuffle with a fixed seed; None: all."""
    if num_samples is None or num_samples >= len(samples):
        return samples
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    return Fewer(samples, order[:num_samples].sort().values)


def fewer(data: DataSet, *, num_images: int | None, num_validation: int | None) -> DataSet:
    """A data set with so many images to train and to validate on."""
    train, validation = first_of(data.train, num_images), first_of(data.validation, num_validation)
    if train is data.train and validation is data.validation:
        return data
    said = f"cut down to {len(train):,} images to train and {len(validation):,} to validate on"
    return replace(data, train=train, validation=validation, summary=(*data.summary, said))
