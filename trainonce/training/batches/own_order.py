"""Samplers and batch samplers of the user's own: each epoch's order, the same whenever it is asked for.

Their random numbers are seeded from the run's seed and the epoch, whether they come from torch, Python or
numpy, or from a generator that they hold, and `set_epoch` is called if there is one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from trainonce.data.sample_rng import seeded
from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line, kind_and_reason


@dataclass(frozen=True, slots=True, eq=False)
class OwnDrawing:
    """The order that a sampler gives, epoch by epoch."""

    sampler: Any
    num_samples: int
    """Of the data set that it chooses from."""

    what: str
    """The data's name in errors."""

    gives_batches: bool
    """Whether it is a batch sampler."""

    num_draws: int
    """In its first epoch."""

    num_batches: int | None
    """In every epoch; None if it gives single samples."""

    largest_batch: int
    smallest_batch: int
    """In its first epoch; both are 0 if it gives single samples."""

    @classmethod
    def of(cls, sampler: Any, num_samples: int, what: str, *, gives_batches: bool) -> OwnDrawing:
        """Read from the first epoch; SettingError for a sampler that can't be used."""
        if not hasattr(sampler, "__len__"):
            raise SettingError(
                f"the {what} DataLoader has a sampler of class {_name(sampler)} without a length. Give it "
                "a __len__."
            )
        found = cls(sampler, num_samples, what, gives_batches, 0, None, 0, 0).epoch(0, 0)
        sizes = [len(batch) for batch in found]
        total = sum(sizes)
        if not sizes or min(sizes) < 1:
            raise SettingError(
                f"the {what} DataLoader's {_name(sampler)} gives nothing, or an empty batch. Check it."
            )
        if not gives_batches:
            return cls(sampler, num_samples, what, False, total, None, 0, 0)
        return cls(sampler, num_samples, what, True, total, len(sizes), max(sizes), min(sizes))

    def epoch(self, seed: int, number: int) -> list[Tensor]:
        """The batches of an epoch; all samples in one, if the sampler gives single samples."""
        found = self._listed(seed, number)
        expected = self.num_batches if self.gives_batches else self.num_draws
        if expected and len(found) < expected:
            raise SettingError(
                f"the {self.what} DataLoader's {_name(self.sampler)} gave {len(found)} "
                f"{'batches' if self.gives_batches else 'samples'} in epoch {number + 1} and {expected} in "
                "the first. Every epoch must have the same number."
            )
        return [_indices(one, self) for one in (found if self.gives_batches else [found])]

    def possible(self) -> Tensor:
        """The samples of the first epoch."""
        return torch.cat(self.epoch(0, 0)).unique()

    def _listed(self, seed: int, number: int) -> list[Any]:
        with seeded(seed):
            for part in _parts_of(self.sampler):
                _seed_generators(part, seed)
                if callable(set_epoch := getattr(part, "set_epoch", None)):
                    set_epoch(number)
            try:
                # It may go on forever; its length says how much is an epoch.
                return list(islice(iter(self.sampler), len(self.sampler)))
            except Exception as error:
                # A sampler of the user's may raise anything.
                raise SettingError(
                    f"the {self.what} DataLoader's {_name(self.sampler)} has failed "
                    f"({kind_and_reason(error)}). Check it."
                ) from error


def class_for_processes(sampler: Any) -> str | None:
    """The class of a sampler that gives each process its own part, as DistributedSampler does."""
    return next((_name(part) for part in _parts_of(sampler) if hasattr(part, "num_replicas")), None)


def _parts_of(sampler: Any) -> Iterator[Any]:
    """The sampler and those that it is made of."""
    seen: list[Any] = []
    while sampler is not None and all(sampler is not other for other in seen):
        seen.append(sampler)
        yield sampler
        sampler = getattr(sampler, "sampler", None) or getattr(sampler, "batch_sampler", None)


def _seed_generators(part: Any, seed: int) -> None:
    for value in getattr(part, "__dict__", {}).values():
        if isinstance(value, torch.Generator):
            value.manual_seed(seed)
        elif isinstance(value, random.Random):
            value.seed(seed)
        elif (bits := getattr(value, "bit_generator", None)) is not None:
            bits.state = type(bits)(seed).state
        elif type(value).__name__ == "RandomState":
            value.seed(seed % 2**32)


def _indices(found: Any, drawing: OwnDrawing) -> Tensor:
    try:
        indices = torch.tensor([int(number) for number in found], dtype=torch.long)
    except (TypeError, ValueError):
        indices = torch.tensor([-1])
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < drawing.num_samples:
        raise SettingError(
            f"the {drawing.what} DataLoader's {_name(drawing.sampler)} must give "
            f"{'lists of ' if drawing.gives_batches else ''}numbers from 0 to {drawing.num_samples - 1}, one "
            "per sample."
        )
    return indices


def _name(sampler: Any) -> str:
    return in_one_line(type(sampler).__name__, 60)
