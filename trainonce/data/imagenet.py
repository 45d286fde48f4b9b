"""ImageNet from a folder with `train/` and `val/`, one folder per class in each, as torchvision and timm read it."""

from __future__ import annotations

from trainonce.data.catalogue import BadData, DataOptions, DataSet, dataset
from trainonce.data.folder import from_listings, list_images


@dataset("imagenet")
def open_imagenet(_: str, options: DataOptions) -> DataSet:
    """224 pixels unless the options say otherwise. The files can't be downloaded without an account."""
    if options.data_dir is None or not (options.data_dir.expanduser() / "train").is_dir():
        raise BadData("imagenet needs --data-dir, a folder with train/ and val/ and one folder per class in each.")
    classes, train, validation = list_images(options.data_dir.expanduser(), seed=options.seed)
    return from_listings("imagenet", classes, train, validation, options)
