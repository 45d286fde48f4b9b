"""Data sets by name.

Takes `digits`, `cifar10` or `folder:PATH` and options, gives the training and validation samples.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainonce.data.file_names import shown
from trainonce.data.samples import Samples
from trainonce.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """How a data set is opened."""

    data_dir: Path | None = None
    """Where its files are, or are downloaded to; for folder:PATH, the folder that is read instead of PATH."""

    image_size: int | None = None
    """Height and width in pixels; None leaves the data set's own. Images in files are used at 224 at most."""

    augment: str = "standard"
    num_workers: int = 0
    """Processes that read image files; images in memory need none."""

    seed: int = 0
    """Splits a folder that has no validation part, together with the names of its files."""

    download: bool = True
    max_bad_images: int = 10
    """Broken image files that are skipped before the run stops."""


DEFAULT_OPTIONS = DataOptions()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DataSet:
    """Training and validation samples with what is known about them."""

    name: str
    classes: tuple[str, ...]
    image_size: int
    train: Samples
    validation: Samples
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Size, augmentation, split and normalization as plain values, which a run keeps and compares."""

    summary: tuple[str, ...] = ()
    """What is in it, in a few lines for whoever starts a run."""

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model has to know about a data set, and what is known without reading it."""

    num_classes: int
    image_size: int


Opener = Callable[[str, DataOptions], DataSet]
Describer = Callable[[str, DataOptions], Shape]
_OPENERS: dict[str, Opener] = {}
_DESCRIBERS: dict[str, Describer] = {}
_MODULES = ("digits", "cifar", "fashion", "imagenet", "folder")


def dataset(name: str, *, shape: Shape | Describer | None = None) -> Callable[[Opener], Opener]:
    """Register a function that opens the data set of this name.

    It gets what stands behind the colon, and the options.

    With a `shape`, or a function that finds it quickly, bad settings are refused before the data is opened.
    """

    def register(opener: Opener) -> Opener:
        if name in _OPENERS:
            raise ValueError(f"there is a data set {name!r} already. Choose another name.")
        _OPENERS[name] = opener
        if shape is not None:
            _DESCRIBERS[name] = _resized(shape) if isinstance(shape, Shape) else shape
        return opener

    return register


def dataset_names() -> tuple[str, ...]:
    """Every name that `open_data` knows."""
    for module in _MODULES:
        importlib.import_module(f"trainonce.data.{module}")
    return tuple(sorted(_OPENERS))


def check_source(source: str, options: DataOptions) -> None:
    """Raise DataError if the name is unknown or the folder isn't there; nothing is loaded."""
    name, colon, rest = source.partition(":")
    if name not in dataset_names():
        raise DataError(_unknown(source, name))
    if name == "folder":
        if not rest:
            raise DataError(
                "folder needs a path. Write it as folder:PATH, with one folder of images per class in it."
            )
        place = expanded(rest if options.data_dir is None else options.data_dir)
        if not os.path.isdir(place):
            advice = "Give the folder that holds train/ and val/, or one folder per class" + (
                "; if it was moved, say with --data-dir where it is." if options.data_dir is None else "."
            )
            raise DataError(f"there is no folder {shown(place)}. {advice}")
    elif colon:
        raise DataError(f"{name} takes nothing behind a colon. Say where its files are with --data-dir.")
    elif options.data_dir is not None and not os.path.isdir(expanded(options.data_dir)):
        if options.download and name != "imagenet":
            return
        raise DataError(
            f"there is no folder {shown(options.data_dir)}. Give the folder that holds the files of {name}."
        )


def _unknown(source: str, name: str) -> str:
    """What is wrong with a name that no data set has, and what may have been meant."""
    if os.path.isdir(os.path.expanduser(source)):
        return (
            f"{shown(source)} is a folder, not the name of a data set. For the images in it, write "
            f"folder:{shown(source)}"
        )
    if os.path.isfile(os.path.expanduser(source)):
        return (
            f"{shown(source)} is a file, not the name of a data set. Give images as folder:PATH, a folder "
            "with one folder per class."
        )
    near = difflib.get_close_matches(name, dataset_names(), n=2, cutoff=0.5)
    if near and os.sep not in source:
        return f"there is no data set '{shown(name)}'. Did you mean {' or '.join(near)}?"
    return (
        f"there is no data set '{shown(name)}'. Known: {', '.join(dataset_names())}; for your own images, "
        "folder:PATH."
    )


def expanded(path: str | Path) -> Path:
    """The path with ~ written out; DataError where nobody knows what ~ is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(
            f"there is no home folder that {shown(path)} could be in. Write the path out, or set HOME."
        ) from None


def list_few(classes: Sequence[str]) -> str:
    """The number of classes, and the first names."""
    names = ", ".join(shown(name) for name in classes[:8])
    return f"{len(classes):,} classes: {names}{', ...' if len(classes) > 8 else ''}"


def describe_data(source: str, options: DataOptions) -> Shape | None:
    """The shape of the data set that `source` names, if it can be known without reading it."""
    name, _, rest = source.partition(":")
    return _DESCRIBERS[name](rest, options) if name in dataset_names() and name in _DESCRIBERS else None


def open_data(source: str, options: DataOptions = DEFAULT_OPTIONS) -> DataSet:
    """The data set that `source` names.

    open_data("digits")
    open_data("folder:photos", DataOptions(image_size=224, num_workers=4))
    """
    check_source(source, options)
    name, _, rest = source.partition(":")
    return _OPENERS[name](rest, options)


def _resized(shape: Shape) -> Describer:
    return lambda _, options: Shape(shape.num_classes, options.image_size or shape.image_size)
