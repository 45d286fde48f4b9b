"""ImageNet from a folder with `train/` and `val/`, in the layout of torchvision and timm."""

from __future__ import annotations

import os
from pathlib import Path

from trainonce.data.catalogue import DataOptions, DataSet, Shape, dataset, expanded
from trainonce.data.file_names import shown
from trainonce.data.folder import from_listings
from trainonce.data.listing import list_classes, list_images
from trainonce.data.sizing import LARGEST_SIZE, typical_side
from trainonce.errors import DataError


def describe_imagenet(_: str, options: DataOptions) -> Shape:
    """The number of class folders."""
    classes = list_classes(_find_root(options) / "train")
    return Shape(num_classes=len(classes), image_size=options.image_size or LARGEST_SIZE)


@dataset("imagenet", shape=describe_imagenet)
def open_imagenet(_: str, options: DataOptions) -> DataSet:
    """ImageNet, by default at 224 pixels. It can't be downloaded without an account."""
    root = _find_root(options)
    side = typical_side(root / "train", list_classes(root / "train"))
    size = options.image_size or LARGEST_SIZE
    return from_listings("imagenet", list_images(root, seed=options.seed), options, side=side, size=size)


def _find_root(options: DataOptions) -> Path:
    if options.data_dir is None:
        raise DataError(
            "imagenet needs --data-dir, a folder with train/ and val/, each with one folder per class."
        )
    root = expanded(options.data_dir)
    if not os.path.isdir(root / "train"):
        raise DataError(
            f"there is no train/ in {shown(root)}. Pass a folder with train/ and val/, each with one folder "
            "per class."
        )
    return root
