"""From tensors of images to a data set.

Takes training and validation images as bytes, gives them in the wanted size, normalised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from trainonce.data.augmentation import small_image_augmentation
from trainonce.data.catalogue import DataOptions, DataSet, list_few
from trainonce.data.identity.describing import describe_tensors
from trainonce.data.pictures import Normalisation, Pictures
from trainonce.data.sizing import describe_sizes

Labelled = tuple[Tensor, Tensor]


def in_memory(
    name: str,
    classes: tuple[str, ...],
    train: Labelled,
    validation: Labelled,
    options: DataOptions,
    *,
    flips: bool,
) -> DataSet:
    """A data set of images that are all in memory.

    `flips` says whether a mirror image still means the same.
    """
    side, counts = train[0].shape[-1], [len(labels) for _, labels in (train, validation)]
    size = options.image_size or side
    train_images, validation_images = resize(train[0], size), resize(validation[0], size)
    normalise = Normalisation.of(train_images)
    augment = small_image_augmentation(options.augment, size, flips=flips)
    # Of the images as they came: resized ones may differ by a rounding between machines.
    origins = [partial(describe_tensors, part) for part in (train, validation)]
    return DataSet(
        name=name,
        classes=classes,
        image_size=size,
        train=Pictures(train_images, train[1], normalise, augment, origins[0]),
        validation=Pictures(validation_images, validation[1], normalise, identify=origins[1]),
        settings={"image_size": size, "augment": options.augment, "normalization": normalise.as_plain()},
        summary=(
            f"{counts[0]:,} images to train on, {counts[1]:,} to validate on, as {name} divides them",
            list_few(classes),
            describe_sizes(side, size),
        ),
    )


def with_normalization(data: DataSet, kept: Mapping[str, Any] | None) -> DataSet:
    """The data set with the normalization that a run has kept: its model needs images as in training."""
    found = (kept or {}).get("settings")
    found = found.get("normalization") if isinstance(found, dict) else None
    train, validation = data.train, data.validation
    if not (_is_normalization(found) and isinstance(train, Pictures) and isinstance(validation, Pictures)):
        return data
    normalise = Normalisation(*map(tuple, found))
    return replace(
        data,
        train=replace(train, normalise=normalise),
        validation=replace(validation, normalise=normalise),
        settings={**data.settings, "normalization": normalise.as_plain()},
    )


def _is_normalization(found: Any) -> TypeGuard[list[list[float]]]:
    return (
        isinstance(found, list)
        and len(found) == 2
        and all(isinstance(row, list) and len(row) == 3 for row in found)
        and all(isinstance(number, float) for row in found for number in row)
        and all(number > 0 for number in found[1])
    )


def resize(images_NCHW: Tensor, size: int) -> Tensor:
    """The images with `size` rows and columns, as bytes."""
    if tuple(images_NCHW.shape[2:]) == (size, size):
        return images_NCHW.contiguous()
    # In pieces: a float copy of a whole data set would take four times its memory.
    pieces = [
        F.interpolate(piece.float(), size=(size, size), mode="bilinear", antialias=True)
        for piece in images_NCHW.split(1024)
    ]
    return torch.cat([piece.round().clamp(0, 255).to(torch.uint8) for piece in pieces])
