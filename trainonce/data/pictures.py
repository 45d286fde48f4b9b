"""Small images in memory: takes one uint8 tensor and labels, gives batches of floats by sample number.

Nothing is read or decoded while training: one core delivers tens of thousands of 32-pixel images per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainonce.data.augmentation import Augmentation, Unchanged
from trainonce.data.identity.describing import describe_tensors
from trainonce.data.samples import Draw


@dataclass(frozen=True, slots=True, eq=False)
class Normalisation:
    """What brings the pixels of a data set to mean 0 and deviation 1, one number per colour."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, images_NCHW: Tensor) -> Normalisation:
        """Measured on these images, from 0 to 255; a colour without any change is left in its scale."""
        counts = images_NCHW.shape[0] * images_NCHW.shape[2] * images_NCHW.shape[3]
        total = images_NCHW.sum(dim=(0, 2, 3), dtype=torch.double)
        # Squares of whole numbers are summed exactly, image after image, without a float copy of all of them.
        squares = (
            torch.stack([image.to(torch.long).square().sum(dim=(1, 2)) for image in images_NCHW])
            .sum(dim=0)
            .double()
        )
        mean = total / counts
        deviation = (squares / counts - mean.square()).clamp_min(0).sqrt()
        deviation = torch.where(deviation < 1e-6, 255.0, deviation)
        return cls(tuple((mean / 255).tolist()), tuple((deviation / 255).tolist()))

    def as_plain(self) -> list[list[float]]:
        """Mean and deviation as JSON holds them."""
        return [list(self.mean), list(self.deviation)]

    def __call__(self, images_NCHW: Tensor) -> Tensor:
        """Floats from bytes."""
        scale = 1 / (255 * torch.tensor(self.deviation, dtype=torch.float).view(-1, 1, 1))
        shift = torch.tensor(self.mean, dtype=torch.float).view(-1, 1, 1) * 255 * scale
        return images_NCHW.float().mul_(scale).sub_(shift)


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Images and labels that are all in memory."""

    images_NCHW: Tensor
    labels_N: Tensor
    normalise: Normalisation
    augment: Augmentation = field(default_factory=Unchanged)
    identify: Callable[[], dict[str, Any]] | None = None
    """Describes what the images come from, if that is more than these tensors: files, or another size."""

    def __len__(self) -> int:
        return len(self.images_NCHW)

    @property
    def labels(self) -> Tensor:
        """The class of every sample."""
        return self.labels_N

    def describe_identity(self) -> dict[str, Any]:
        """What the images come from, to tell whether it is the same later."""
        if self.identify is not None:
            return self.identify()
        return describe_tensors([self.images_NCHW, self.labels_N])

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each draw of sample numbers and a seed: images of mean 0 and deviation 1, and their labels."""
        for samples_N, seed in draws:
            images_NCHW = self.augment(self.images_NCHW[samples_N], samples_N, seed)
            yield self.normalise(images_NCHW), self.labels_N[samples_N]
