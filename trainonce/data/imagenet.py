"""ImageNet from a folder with `train/` and `val/`, one folder per class in each, as torchvision and timm read it."""

from __future__ import annotations

from pathlib import Path

from trainonce.data.catalogue import BadData, DataOptions, DataSet, Shape, dataset
from trainonce.data.folder import describe_folder, from_listings, list_images


def describe_imagenet(_: str, options: DataOptions) -> Shape:
    """As many classes as there are folders."""
    return describe_folder(_find_root(options), options)


@dataset("imagenet", shape=describe_imagenet)
def open_imagenet(_: str, options: DataOptions) -> DataSet:
    """224 pixels unless the options say otherwise. The files can't be downloaded without an account."""
    classes, train, validation = list_images(_find_root(options), seed=options.seed)
    return from_listings("imagenet", classes, train, validation, options)


def _find_root(options: DataOptions) -> Path:
    if options.data_dir is None:
        raise BadData("imagenet needs --data-dir, a folder with train/ and val/ and one folder per class in each.")
    if not (options.data_dir.expanduser() / "train").is_dir():
        raise BadData(f"there is no train/ in {options.data_dir}. Give a folder with train/ and val/ and one folder per class in each.")
    return options.data_dir.expanduser()
