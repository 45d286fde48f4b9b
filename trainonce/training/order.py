"""Which samples a step sees: takes a step number, gives sample numbers.

Nothing is remembered, so that a run can go on at any step, on any number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainonce.noise import mix

_ORDER, _CONTROLLER, _LOOK = 1, 2, 3
"""What a number is drawn for, so that no two streams are the same."""


@dataclass(slots=True)
class Order:
    """Every epoch a new permutation of the samples, in batches; a rest smaller than a batch waits for another epoch."""

    samples: Tensor
    """The numbers to draw from."""

    batch_size: int
    seed: int
    _epoch: int = field(default=-1, repr=False)
    _shuffled: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long), repr=False)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch; one if there are fewer samples than a batch takes."""
        return max(1, len(self.samples) // self.batch_size)

    def batch(self, step: int) -> Tensor:
        """The samples of a step, counted from 0 through all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(mix(self.seed, _ORDER, epoch))
            self._shuffled = self.samples[torch.randperm(len(self.samples), generator=generator)]
            self._epoch = epoch
        return self._shuffled[position * self.batch_size : (position + 1) * self.batch_size]

    def look(self, step: int) -> int:
        """The seed of how samples look in the epoch of this step."""
        return mix(self.seed, _LOOK, step // self.steps_per_epoch)


def draw_controller_samples(num_samples: int, share: float, seed: int) -> Tensor:
    """A share of all samples, at least two, in rising order: what the masks are searched on."""
    generator = torch.Generator().manual_seed(mix(seed, _CONTROLLER))
    count = min(num_samples, max(2, round(share * num_samples)))
    return torch.randperm(num_samples, generator=generator)[:count].sort().values


def share_of(batch: Tensor, rank: int, world_size: int) -> Tensor:
    """The part of a batch that one process takes; the parts of all processes are the batch."""
    return batch.tensor_split(world_size)[rank]
