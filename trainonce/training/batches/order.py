"""Which samples a step sees: takes a step number, gives sample numbers.

Nothing is remembered, so that a run can go on at any step, on any number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainonce.data.sample_rng import mix

_ORDER, _CONTROLLER, _LOOK = 1, 2, 3
"""What a number is drawn for, so that no two streams are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """How an epoch is drawn that is no permutation: `num_draws` numbers, each as often as its weight says."""

    weights: Tensor
    """One per sample, none negative."""

    num_draws: int
    replacement: bool

    def draw(self, generator: torch.Generator) -> Tensor:
        """The numbers of one epoch."""
        return torch.multinomial(self.weights, self.num_draws, self.replacement, generator=generator)

    def among(self, samples: Tensor) -> Drawing:
        """The same weights on a part of the samples, as many draws as it has."""
        return Drawing(self.weights[samples], len(samples), replacement=True)


@dataclass(slots=True)
class Order:
    """Every epoch a new permutation of the samples, in batches.

    A rest smaller than a batch waits for another epoch.
    """

    samples: Tensor
    """The numbers to draw from."""

    batch_size: int
    seed: int
    drawing: Drawing | None = None
    """Instead of a permutation."""

    _epoch: int = field(default=-1, repr=False)
    _shuffled: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long), repr=False)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch; one if there are fewer samples than a batch takes."""
        return max(1, self.epoch_size // self.batch_size)

    @property
    def epoch_size(self) -> int:
        """Samples that an epoch draws."""
        return len(self.samples) if self.drawing is None else self.drawing.num_draws

    def batch(self, step: int) -> Tensor:
        """The samples of a step, counted from 0 through all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(mix(self.seed, _ORDER, epoch))
            places = (
                torch.randperm(len(self.samples), generator=generator)
                if self.drawing is None
                else self.drawing.draw(generator)
            )
            self._shuffled = self.samples[places]
            self._epoch = epoch
        return self._shuffled[position * self.batch_size : (position + 1) * self.batch_size]

    def look(self, step: int) -> int:
        """The seed of how samples look in the epoch of this step."""
        return mix(self.seed, _LOOK, step // self.steps_per_epoch)


def draw_controller_samples(
    num_samples: int, share: float, seed: int, drawing: Drawing | None = None
) -> Tensor:
    """A share of the samples that may be drawn, at least two, rising: what the masks are searched on."""
    if drawing is not None:
        drawn = drawing.weights.nonzero().flatten()
        return drawn[draw_controller_samples(len(drawn), share, seed)]
    generator = torch.Generator().manual_seed(mix(seed, _CONTROLLER))
    count = min(num_samples, max(2, round(share * num_samples)))
    return torch.randperm(num_samples, generator=generator)[:count].sort().values


def share_of(batch: Tensor, rank: int, world_size: int) -> Tensor:
    """The part of a batch that one process takes; the parts of all processes are the batch."""
    return batch.tensor_split(world_size)[rank]
