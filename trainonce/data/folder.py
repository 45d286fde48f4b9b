"""Your own images, in one folder per class.

photos/train/cat/1.jpg    photos/val/cat/9.jpg        or train/ and test/
photos/cat/1.jpg                                      one folder, split by file name
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainonce.data.augmentation import small_image_augmentation
from trainonce.data.catalogue import DataOptions, DataSet, Shape, dataset, expanded, list_few
from trainonce.data.decoding import decode
from trainonce.data.file_names import shown
from trainonce.data.files import (
    IMAGENET,
    ImageFiles,
    check_bad,
    resized_side,
    training_transform,
    validation_transform,
)
from trainonce.data.identity.describing import describe_files
from trainonce.data.listing import Listing, Listings, list_classes, list_images, training_folder
from trainonce.data.pictures import Normalization, Pictures
from trainonce.data.sizing import describe_sizes, own_size, typical_side
from trainonce.errors import DataError

LARGEST_IN_MEMORY = 64
"""Images up to this size in pixels are decoded once and kept in memory."""

log = logging.getLogger("trainonce")


def describe_folder(path: str | Path, options: DataOptions) -> Shape:
    """The number of class folders, and the size of the images, from a few of them."""
    first = training_folder(find_root(path, options))
    classes = list_classes(first)
    size = options.image_size or own_size(typical_side(first, classes))
    return Shape(num_classes=len(classes), image_size=size)


@dataset("folder", shape=describe_folder)
def open_folder(path: str, options: DataOptions) -> DataSet:
    """A folder of images, by default at their own size, at most 224 pixels."""
    root = find_root(path, options)
    listings = list_images(root, seed=options.seed)
    side = typical_side(training_folder(root), list_classes(training_folder(root)))
    size = options.image_size or own_size(side)
    return from_listings(f"folder:{path}", listings, options, side=side, size=size)


def find_root(path: str | Path, options: DataOptions) -> Path:
    """The folder, or `data_dir` of the options, if it has moved."""
    return expanded(path if options.data_dir is None else options.data_dir)


def from_listings(
    name: str,
    listings: Listings,
    options: DataOptions,
    *,
    side: int | None,
    size: int,
) -> DataSet:
    """A data set of image files: small ones in memory, large ones decoded on the fly."""
    train: Any
    validation: Any
    if size <= LARGEST_IN_MEMORY:
        bad: dict[Path, str] = {}
        images, labels = _decode_all(listings.train, size, bad, options.max_bad_images)
        _check_classes(listings, labels, bad)
        normalize = Normalization.of(images)
        augment = small_image_augmentation(options.augment, size, flips=True)
        train = Pictures(images, labels, normalize, augment, _Origin(listings.train, len(images)))
        images, labels = _decode_all(listings.validation, size, bad, options.max_bad_images)
        validation = Pictures(images, labels, normalize, identify=_Origin(listings.validation, len(images)))
    else:
        normalize = IMAGENET
        train = _files(listings.train, options, training_transform(size, options.augment), is_training=True)
        validation = _files(listings.validation, options, validation_transform(size), is_training=False)
    classes, place = listings.classes, shown(listings.train.root)
    return DataSet(
        name=name,
        classes=classes,
        image_size=size,
        train=train,
        validation=validation,
        settings={
            "image_size": size,
            "augment": options.augment,
            "split": listings.split,
            "normalization": normalize.as_plain(),
        },
        summary=(
            f"{len(train):,} training and {len(validation):,} validation images in {place}",
            list_few(classes),
            listings.split,
            describe_sizes(side, size),
        ),
        shorter_side=resized_side(size),
    )


def _check_classes(listings: Listings, labels: Tensor, bad: Mapping[Path, str]) -> None:
    """Raise DataError if a class has nothing to train on, because none of its images could be read."""
    for label in sorted({*listings.train.labels} - {*labels.tolist()}):
        path = listings.train.path(listings.train.labels.index(label))
        raise DataError(
            f"none of the training images of class '{shown(listings.classes[label])}' can be read, such as "
            f"{shown(path)} ({bad[path]}). Replace them, or remove the class."
        )


class _Origin:
    """Describes the files that images in memory come from, only when asked, because it reads them all."""

    def __init__(self, listing: Listing, count: int) -> None:
        self._listing, self._count = listing, count

    def __call__(self) -> dict[str, Any]:
        found = self._listing
        return describe_files(found.root, found.names, found.labels, count=self._count)


def _files(listing: Listing, options: DataOptions, transform: object, *, is_training: bool) -> ImageFiles:
    return ImageFiles(
        listing=listing,
        labels=torch.tensor(listing.labels, dtype=torch.long),
        transform=transform,  # type: ignore[arg-type]
        num_workers=options.num_workers,
        max_bad_images=options.max_bad_images,
        replaces_bad=is_training,
    )


def _decode_all(listing: Listing, size: int, bad: dict[Path, str], limit: int) -> tuple[Tensor, Tensor]:
    transform = validation_transform(size)
    images, labels = [], []
    for number, label in enumerate(listing.labels):
        path = listing.path(number)
        try:
            images.append(transform(decode(path)))
            labels.append(label)
        except OSError as error:
            bad[path] = str(error)
            log.warning("skipped a broken image: %s (%s)", shown(path), error)
            check_bad(bad, limit)
    if not images:
        raise DataError(
            f"none of the {len(listing)} images can be read, such as {shown(next(iter(bad)))}. Fix or "
            "remove them."
        )
    return torch.stack(images), torch.tensor(labels, dtype=torch.long)
