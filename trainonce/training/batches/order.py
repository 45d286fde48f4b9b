"""Data order: the sample indices of a step, from the seed and the step alone.

There is no state, so a run can resume at any step, on any number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainonce.data.sample_rng import mix
from trainonce.training.batches.own_order import OwnDrawing

_ORDER, _CONTROLLER, _LOOK = 1, 2, 3
"""Purposes that random numbers are drawn for, so that no two streams are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Weighted sampling: an epoch of `num_draws` indices instead of a permutation."""

    weights: Tensor
    """One per sample, not negative."""

    num_draws: int
    replacement: bool

    def draw(self, generator: torch.Generator) -> Tensor:
        """The indices of one epoch."""
        return torch.multinomial(self.weights, self.num_draws, self.replacement, generator=generator)

    def among(self, samples: Tensor) -> Drawing:
        """The same weights on a subset, with as many draws as it has samples."""
        return Drawing(self.weights[samples], len(samples), replacement=True)

    def possible(self) -> Tensor:
        """The samples that may be drawn."""
        return self.weights.nonzero().flatten()


@dataclass(slots=True)
class Order:
    """A new permutation of the samples for every epoch, in batches; an incomplete last batch is dropped."""

    samples: Tensor
    """The indices to draw from."""

    batch_size: int
    seed: int
    drawing: Drawing | OwnDrawing | None = None
    """Replaces the permutation, or the batches as well."""

    _epoch: int = field(default=-1, repr=False)
    _batches: Sequence[Tensor] = field(default=(), repr=False)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch; one if there are fewer samples than the batch size."""
        if isinstance(self.drawing, OwnDrawing) and self.drawing.num_batches is not None:
            return self.drawing.num_batches
        return max(1, self.epoch_size // self.batch_size)

    @property
    def epoch_size(self) -> int:
        """Samples in an epoch."""
        return len(self.samples) if self.drawing is None else self.drawing.num_draws

    def batch(self, step: int) -> Tensor:
        """The indices of a step, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._batches = self._drawn(mix(self.seed, _ORDER, epoch), epoch)
            self._epoch = epoch
        return self._batches[position]

    def _drawn(self, seed: int, epoch: int) -> Sequence[Tensor]:
        if isinstance(self.drawing, OwnDrawing):
            found = self.drawing.epoch(seed, epoch)
            return found if self.drawing.gives_batches else found[0].split(self.batch_size)
        generator = torch.Generator().manual_seed(seed)
        places = (
            torch.randperm(len(self.samples), generator=generator)
            if self.drawing is None
            else self.drawing.draw(generator)
        )
        return self.samples[places].split(self.batch_size)

    @property
    def smallest_batch(self) -> int:
        """The size of the smallest batch."""
        own = self.drawing.smallest_batch if isinstance(self.drawing, OwnDrawing) else 0
        return own or self.batch_size

    def look(self, step: int) -> int:
        """The augmentation seed of the epoch of this step."""
        return mix(self.seed, _LOOK, step // self.steps_per_epoch)


def draw_controller_samples(
    num_samples: int, share: float, seed: int, drawing: Drawing | OwnDrawing | None = None
) -> Tensor:
    """The indices that the controller trains on: a fraction of the samples, at least two, in order."""
    if drawing is not None:
        drawn = drawing.possible()
        return drawn[draw_controller_samples(len(drawn), share, seed)]
    generator = torch.Generator().manual_seed(mix(seed, _CONTROLLER))
    count = min(num_samples, max(2, round(share * num_samples)))
    return torch.randperm(num_samples, generator=generator)[:count].sort().values


def share_of(batch: Tensor, rank: int, world_size: int) -> Tensor:
    """The part of a batch that belongs to one process."""
    return batch.tensor_split(world_size)[rank]
