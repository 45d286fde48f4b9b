"""What data looks like to a training loop: numbered samples that come in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

Draw = tuple[Tensor, int]
"""Sample indices, and a seed for whatever is random about them."""


@runtime_checkable
class Samples(Protocol):
    """A data set that gives the same batch for the same indices and seed."""

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets for each draw."""
        ...
