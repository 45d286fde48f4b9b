"""Your own images: takes a folder with one folder per class, gives training and validation samples.

photos/train/cat/1.jpg    photos/val/cat/9.jpg        or train/ and test/
photos/cat/1.jpg                                      one folder, split by seed
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import Tensor

from trainonce.data.augmentation import small_image_augmentation
from trainonce.data.catalogue import BadData, DataOptions, DataSet, Shape, dataset
from trainonce.data.files import ImageFiles, check_bad, decode, training_transform, validation_transform
from trainonce.data.pictures import Normalisation, Pictures
from trainonce.noise import uniform

ENDINGS = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"))
VALIDATION_NAMES = ("val", "valid", "validation", "test")
VALIDATION_SHARE = 0.2
LARGEST_IN_MEMORY = 64
"""Images of up to this many pixels are decoded once and kept."""
DEFAULT_SIZE = 224

Listing = list[tuple[Path, int]]
log = logging.getLogger("trainonce")


def describe_folder(path: str | Path, options: DataOptions) -> Shape:
    """How many classes there are folders for; the images are not looked at."""
    root = Path(path).expanduser()
    classes = _classes(root / "train" if (root / "train").is_dir() else root)
    return Shape(num_classes=len(classes), image_size=options.image_size or DEFAULT_SIZE)


@dataset("folder", shape=describe_folder)
def open_folder(path: str, options: DataOptions) -> DataSet:
    """What is in a folder, of 224 pixels unless the options say otherwise."""
    root = Path(path).expanduser()
    classes, train, validation = list_images(root, seed=options.seed)
    return from_listings(f"folder:{path}", classes, train, validation, options)


def from_listings(name: str, classes: tuple[str, ...], train: Listing, validation: Listing, options: DataOptions) -> DataSet:
    """A data set of image files: in memory if they are small, read when needed otherwise."""
    size = options.image_size or DEFAULT_SIZE
    if size <= LARGEST_IN_MEMORY:
        bad: dict[Path, str] = {}
        images, labels = _decode_all(train, size, bad, options.max_bad_images)
        normalise = Normalisation.of(images)
        augment = small_image_augmentation(options.augment, size, flips=True)
        return DataSet(
            name=name,
            classes=classes,
            image_size=size,
            train=Pictures(images, labels, normalise, augment),
            validation=Pictures(*_decode_all(validation, size, bad, options.max_bad_images), normalise),
        )
    return DataSet(
        name=name,
        classes=classes,
        image_size=size,
        train=_files(train, options, training_transform(size, options.augment), is_training=True),
        validation=_files(validation, options, validation_transform(size), is_training=False),
    )


def list_images(root: Path, *, seed: int) -> tuple[tuple[str, ...], Listing, Listing]:
    """The classes and the files of each part; an empty class or an unknown one is named."""
    if (root / "train").is_dir():
        second = next((root / name for name in VALIDATION_NAMES if (root / name).is_dir()), None)
        if second is None:
            raise BadData(f"{root} has a train/ and nothing to validate on. Add a folder val/ or test/ beside it.")
        classes = _classes(root / "train")
        unknown = sorted(set(_classes(second)) - set(classes))
        if unknown:
            raise BadData(f"class {unknown[0]!r} is in {second}, and not in {root / 'train'}. Add it there, or remove it here.")
        return classes, _files_of(root / "train", classes), _files_of(second, tuple(c for c in classes if (second / c).is_dir()), classes)
    classes = _classes(root)
    everything = _files_of(root, classes)
    noise_N = uniform(torch.arange(len(everything)), seed, 1).squeeze(1)
    train, validation = [], []
    for label in range(len(classes)):
        of_class = [index for index, (_, found) in enumerate(everything) if found == label]
        of_class.sort(key=lambda index: float(noise_N[index]))
        num_validation = max(1, round(VALIDATION_SHARE * len(of_class)))
        if num_validation == len(of_class):
            raise BadData(f"class {classes[label]!r} in {root} has one image. Add a second, so that one can validate.")
        validation += [everything[index] for index in sorted(of_class[:num_validation])]
        train += [everything[index] for index in sorted(of_class[num_validation:])]
    return classes, train, validation


def _classes(folder: Path) -> tuple[str, ...]:
    classes = tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")))
    if len(classes) < 2:
        raise BadData(f"{folder} holds {len(classes)} classes, two are needed. Give a folder with one folder of images per class.")
    return classes


def _files_of(folder: Path, present: tuple[str, ...], classes: tuple[str, ...] | None = None) -> Listing:
    numbers = {name: number for number, name in enumerate(classes or present)}
    listing: Listing = []
    for name in present:
        files = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
        if not files:
            raise BadData(
                f"class {name!r} in {folder} has no images. Add some ({', '.join(sorted(ENDINGS)[:4])}...), or remove the folder."
            )
        listing += [(path, numbers[name]) for path in files]
    return listing


def _files(listing: Listing, options: DataOptions, transform: object, *, is_training: bool) -> ImageFiles:
    return ImageFiles(
        paths=[path for path, _ in listing],
        labels=torch.tensor([label for _, label in listing], dtype=torch.long),
        transform=transform,  # type: ignore[arg-type]
        num_workers=options.num_workers,
        max_bad_images=options.max_bad_images,
        replaces_bad=is_training,
    )


def _decode_all(listing: Listing, size: int, bad: dict[Path, str], limit: int) -> tuple[Tensor, Tensor]:
    transform = validation_transform(size)
    images, labels = [], []
    for path, label in listing:
        try:
            images.append(transform(decode(path)))
            labels.append(label)
        except OSError as error:
            bad[path] = str(error)
            log.warning("skipped a broken image: %s (%s)", path, error)
            check_bad(bad, limit)
    if not images:
        raise BadData(f"none of the {len(listing)} images can be read, such as {next(iter(bad))}. Mend them.")
    return torch.stack(images), torch.tensor(labels, dtype=torch.long)
