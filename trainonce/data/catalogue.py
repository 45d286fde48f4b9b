"""Data sets by name, such as `digits`, `cifar10` or `folder:PATH`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainonce.data.file_names import shown
from trainonce.data.samples import Samples
from trainonce.errors import DataError, SettingError
from trainonce.messages.suggestions import did_you_mean
from trainonce.storage.artifact.about import Preprocessing


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """How to open a data set."""

    data_dir: Path | None = None
    """Folder of its files, where missing ones are downloaded to; for folder:PATH, replaces PATH."""

    image_size: int | None = None
    """Height and width in pixels; None is the data set's own, at most 224 for image files."""

    augment: str = "standard"
    num_workers: int = 0
    """Worker processes that decode image files; data sets in memory need none."""

    seed: int = 0
    """Splits a folder without a validation part, together with the file names."""

    download: bool = True
    max_bad_images: int = 10
    """Number of broken image files that are skipped before the run stops."""


DEFAULT_OPTIONS = DataOptions()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DataSet:
    """Training and validation samples, with their classes and settings."""

    name: str
    classes: tuple[str, ...]
    image_size: int
    train: Samples
    validation: Samples
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Size, augmentation, split and normalization as plain values, which a run records and compares."""

    summary: tuple[str, ...] = ()
    """A few lines that describe it when a run starts."""

    shorter_side: int | None = None
    """If given, validation images are resized to this before their center is cut out."""

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How a validation image becomes an input, if the data set has a normalization."""
        if "normalization" not in self.settings:
            return None
        mean, deviation = self.settings["normalization"]
        return Preprocessing(
            mean=tuple(mean), std=tuple(deviation), size=self.image_size, shorter_side=self.shorter_side
        )

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model has to know about a data set."""

    num_classes: int
    image_size: int


Opener = Callable[[str, DataOptions], DataSet]
Describer = Callable[[str, DataOptions], Shape]
_OPENERS: dict[str, Opener] = {}
_DESCRIBERS: dict[str, Describer] = {}
_MODULES = ("digits", "cifar", "fashion", "imagenet", "folder")


def dataset(name: str, *, shape: Shape | Describer | None = None) -> Callable[[Opener], Opener]:
    """Register a function that opens the data set of this name.

    It is called with the part of the source after the colon, and the options. With a `shape`, or a function
    that finds it quickly, bad settings are refused before the data is opened.
    """

    def register(opener: Opener) -> Opener:
        if name in _OPENERS:
            raise SettingError(f"the data set {name!r} exists already. Choose another name.")
        _OPENERS[name] = opener
        if shape is not None:
            _DESCRIBERS[name] = _resized(shape) if isinstance(shape, Shape) else shape
        return opener

    return register


def dataset_names() -> tuple[str, ...]:
    """The names of all data sets."""
    for module in _MODULES:
        importlib.import_module(f"trainonce.data.{module}")
    return tuple(sorted(_OPENERS))


def check_source(source: str, options: DataOptions) -> None:
    """Raise DataError if the data set or its folder doesn't exist; nothing is loaded."""
    name, colon, rest = source.partition(":")
    if name not in dataset_names():
        raise DataError(_unknown(source, name))
    if name == "folder":
        if not rest:
            raise DataError("folder needs a path: folder:PATH, with one folder of images per class in it.")
        place = expanded(rest if options.data_dir is None else options.data_dir)
        if not os.path.isdir(place):
            advice = "Pass a folder with train/ and val/, or with one folder per class" + (
                "; if it has moved, pass its new path as --data-dir." if options.data_dir is None else "."
            )
            raise DataError(f"there is no folder {shown(place)}. {advice}")
    elif colon:
        raise DataError(f"{name} takes nothing after a colon. Pass the folder of its files as --data-dir.")
    elif options.data_dir is not None and not os.path.isdir(expanded(options.data_dir)):
        if options.download and name != "imagenet":
            return
        raise DataError(
            f"there is no folder {shown(options.data_dir)}. Pass the folder with the files of {name}."
        )


def _unknown(source: str, name: str) -> str:
    """The message for an unknown data set, with what may have been meant."""
    if os.path.isdir(os.path.expanduser(source)):
        return (
            f"{shown(source)} is a folder, not the name of a data set. Did you mean folder:{shown(source)}?"
        )
    if os.path.isfile(os.path.expanduser(source)):
        return (
            f"{shown(source)} is a file, not the name of a data set. Pass images as folder:PATH, with one "
            "folder per class in it."
        )
    advice = "" if os.sep in source else did_you_mean(name, dataset_names(), most=2)
    names = f"Available: {', '.join(dataset_names())}; folder:PATH for your own images."
    return f"unknown data set '{shown(name)}'. {advice or names}"


def expanded(path: str | Path) -> Path:
    """The path with ~ expanded; DataError if there is no home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(
            f"{shown(path)} can't be expanded: there is no home folder. Pass the full path, or set HOME."
        ) from None


def list_few(classes: Sequence[str]) -> str:
    """The number of classes and the first names."""
    names = ", ".join(shown(name) for name in classes[:8])
    return f"{len(classes):,} classes: {names}{', ...' if len(classes) > 8 else ''}"


def describe_data(source: str, options: DataOptions) -> Shape | None:
    """The shape of a data set, if it is known without reading it; None otherwise."""
    name, _, rest = source.partition(":")
    return _DESCRIBERS[name](rest, options) if name in dataset_names() and name in _DESCRIBERS else None


def open_data(source: str, options: DataOptions = DEFAULT_OPTIONS) -> DataSet:
    """The data set of that name.

    open_data("digits")
    open_data("folder:photos", DataOptions(image_size=224, num_workers=4))
    """
    check_source(source, options)
    name, _, rest = source.partition(":")
    return _OPENERS[name](rest, options)


def _resized(shape: Shape) -> Describer:
    return lambda _, options: Shape(shape.num_classes, options.image_size or shape.image_size)
