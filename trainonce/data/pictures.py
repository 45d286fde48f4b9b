"""Small images in memory, as one uint8 tensor.

Nothing is decoded during training: one core delivers tens of thousands of 32-pixel images per second.
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
class Normalization:
    """Per-channel mean and standard deviation that images are normalized with."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, images_NCHW: Tensor) -> Normalization:
        """Measured on uint8 images; a constant channel is not scaled."""
        counts = images_NCHW.shape[0] * images_NCHW.shape[2] * images_NCHW.shape[3]
        total = images_NCHW.sum(dim=(0, 2, 3), dtype=torch.double)
        # Squares of integers are summed exactly, image by image, without a float copy of all of them.
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
        """Mean and deviation as plain lists."""
        return [list(self.mean), list(self.deviation)]

    def __call__(self, images_NCHW: Tensor) -> Tensor:
        """Normalized floats from uint8 images."""
        scale = 1 / (255 * torch.tensor(self.deviation, dtype=torch.float).view(-1, 1, 1))
        shift = torch.tensor(self.mean, dtype=torch.float).view(-1, 1, 1) * 255 * scale
        return images_NCHW.float().mul_(scale).sub_(shift)


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Images and labels in memory."""

    images_NCHW: Tensor
    labels_N: Tensor
    normalize: Normalization
    augment: Augmentation = field(default_factory=Unchanged)
    identify: Callable[[], dict[str, Any]] | None = None
    """Describes the origin of the images, if it is more than these tensors: files, or another size."""

    def __len__(self) -> int:
        return len(self.images_NCHW)

    @property
    def labels(self) -> Tensor:
        """The label of every sample."""
        return self.labels_N

    def describe_identity(self) -> dict[str, Any]:
        """The origin of the images, to tell later whether it has changed."""
        if self.identify is not None:
            return self.identify()
        return describe_tensors([self.images_NCHW, self.labels_N])

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Tensor, Tensor]]:
        """Normalized images and labels for each draw."""
        for samples_N, seed in draws:
            images_NCHW = self.augment(self.images_NCHW[samples_N], samples_N, seed)
            yield self.normalize(images_NCHW), self.labels_N[samples_N]
