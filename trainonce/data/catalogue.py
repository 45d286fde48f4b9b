"""Data sets by name: takes `digits`, `cifar10` or `folder:PATH` and options, gives the training and validation samples."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor


class BadData(ValueError):
    """Data that can't be used: an unknown name, a missing folder, too many broken images."""


class Samples(Protocol):
    """Numbered samples that come in batches."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def batches(self, draws: Iterable[tuple[Tensor, int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels for each draw of sample numbers and a seed for what is random about them."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """How a data set is opened."""

    data_dir: Path | None = None
    """Where its files are, or are downloaded to."""

    image_size: int | None = None
    """Height and width in pixels; None leaves the data set's own."""

    augment: str = "standard"
    num_workers: int = 0
    """Processes that read image files; images in memory need none."""

    seed: int = 0
    """Splits a folder that has no validation part."""

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
    """Register a function that opens the data set of this name; it gets what stands behind the colon, and the options.

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
    """Raise BadData if the name is unknown or the folder isn't there; nothing is loaded."""
    name, colon, rest = source.partition(":")
    if name not in dataset_names():
        near = difflib.get_close_matches(name, dataset_names(), n=2, cutoff=0.5)
        advice = f"Near to it: {', '.join(near)}." if near else f"Known: {', '.join(dataset_names())}, and folder:PATH."
        raise BadData(f"there is no data set {name!r}. {advice}")
    if name == "folder":
        if not rest:
            raise BadData("folder needs a path. Write it as folder:PATH, with one folder of images per class in it.")
        if not Path(rest).expanduser().is_dir():
            raise BadData(f"there is no folder {rest}. Give the folder that holds train/ and val/, or one folder per class.")
    elif colon:
        raise BadData(f"{name} takes nothing behind a colon. Say where its files are with --data-dir.")
    if options.data_dir is not None and not options.data_dir.expanduser().is_dir() and not (options.download and name != "imagenet"):
        raise BadData(f"there is no folder {options.data_dir}. Give the folder that holds the files of {name}.")


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
