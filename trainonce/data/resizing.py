"""From tensors of images to a data set: takes training and validation images as bytes, gives them in the wanted size, normalised."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trainonce.data.augmentation import small_image_augmentation
from trainonce.data.catalogue import DataOptions, DataSet
from trainonce.data.pictures import Normalisation, Pictures

Labelled = tuple[Tensor, Tensor]


def in_memory(name: str, classes: tuple[str, ...], train: Labelled, validation: Labelled, options: DataOptions, *, flips: bool) -> DataSet:
    """A data set of images that are all in memory; `flips` says whether a mirror image still means the same."""
    size = options.image_size or train[0].shape[-1]
    train_images, validation_images = resize(train[0], size), resize(validation[0], size)
    normalise = Normalisation.of(train_images)
    return DataSet(
        name=name,
        classes=classes,
        image_size=size,
        train=Pictures(train_images, train[1], normalise, small_image_augmentation(options.augment, size, flips=flips)),
        validation=Pictures(validation_images, validation[1], normalise),
    )


def resize(images_NCHW: Tensor, size: int) -> Tensor:
    """The images with `size` rows and columns, as bytes."""
    if tuple(images_NCHW.shape[2:]) == (size, size):
        return images_NCHW.contiguous()
    # In pieces: a float copy of a whole data set would take four times its memory.
    pieces = [F.interpolate(piece.float(), size=(size, size), mode="bilinear", antialias=True) for piece in images_NCHW.split(1024)]
    return torch.cat([piece.round().clamp(0, 255).to(torch.uint8) for piece in pieces])
