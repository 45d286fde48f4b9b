"""Data sets from image tensors: resized, normalized, in memory."""

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
from trainonce.data.pictures import Normalization, Pictures
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
    """A data set in memory; `flips` says whether mirrored images keep their class."""
    side, counts = train[0].shape[-1], [len(labels) for _, labels in (train, validation)]
    size = options.image_size or side
    train_images, validation_images = resize(train[0], size), resize(validation[0], size)
    normalize = Normalization.of(train_images)
    augment = small_image_augmentation(options.augment, size, flips=flips)
    # Before resizing, which may round differently on other machines.
    origins = [partial(describe_tensors, part) for part in (train, validation)]
    return DataSet(
        name=name,
        classes=classes,
        image_size=size,
        train=Pictures(train_images, train[1], normalize, augment, origins[0]),
        validation=Pictures(validation_images, validation[1], normalize, identify=origins[1]),
        settings={"image_size": size, "augment": options.augment, "normalization": normalize.as_plain()},
        summary=(
            f"{counts[0]:,} training and {counts[1]:,} validation images, the standard split of {name}",
            list_few(classes),
            describe_sizes(side, size),
        ),
    )


def with_normalization(data: DataSet, kept: Mapping[str, Any] | None) -> DataSet:
    """The data set with the normalization that a run has recorded, which its model was trained with."""
    found = (kept or {}).get("settings")
    found = found.get("normalization") if isinstance(found, dict) else None
    train, validation = data.train, data.validation
    if not (_is_normalization(found) and isinstance(train, Pictures) and isinstance(validation, Pictures)):
        return data
    normalize = Normalization(*map(tuple, found))
    return replace(
        data,
        train=replace(train, normalize=normalize),
        validation=replace(validation, normalize=normalize),
        settings={**data.settings, "normalization": normalize.as_plain()},
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
    """The images at `size` x `size` pixels, as uint8."""
    if tuple(images_NCHW.shape[2:]) == (size, size):
        return images_NCHW.contiguous()
    # In chunks: a float copy of the data set would take four times its memory.
    pieces = [
        F.interpolate(piece.float(), size=(size, size), mode="bilinear", antialias=True)
        for piece in images_NCHW.split(1024)
    ]
    return torch.cat([piece.round().clamp(0, 255).to(torch.uint8) for piece in pieces])
