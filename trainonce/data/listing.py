"""The image files of a folder with one folder per class, split into training and validation.

The split of a file depends on its name and the seed alone, whatever other files are added or removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainonce.data.decoding import ENDINGS
from trainonce.data.file_names import number_of, shown, spelled
from trainonce.errors import DataError

VALIDATION_NAMES = ("val", "valid", "validation", "test")
VALIDATION_SHARE = 0.2
PART_NAMES = frozenset((*VALIDATION_NAMES, "train", "training"))

log = logging.getLogger("trainonce")


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """Image files with their labels."""

    root: Path
    names: Sequence[str]
    """Relative to the root, with / between folders; the first folder is the class."""
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.names)

    def only(self, numbers: Sequence[int]) -> Listing:
        """A subset of the files."""
        names = [self.names[number] for number in numbers]
        return Listing(self.root, names, [self.labels[number] for number in numbers])

    def path(self, number: int) -> Path:
        """The path of a file."""
        return self.root / self.names[number]


@dataclass(frozen=True, slots=True, eq=False)
class Listings:
    """The images of a folder, split in two."""

    classes: tuple[str, ...]
    train: Listing
    validation: Listing
    split: str
    """How they were split, in words; runs record it and compare it on resume, so it must not change."""


def list_images(root: Path, *, seed: int) -> Listings:
    """The classes and the files of each split; DataError for an empty or unknown class."""
    first = training_folder(root)
    folders = list_classes(first)
    classes = tuple(folders)
    _warn_of_alike(classes)
    _warn_of_loose(first)
    if first == root:
        return _split(list_files(root, folders), classes, seed)
    second = next((root / name for name in VALIDATION_NAMES if os.path.isdir(root / name)), None)
    if second is None:
        raise DataError(
            f"{shown(root)} has train/, but no validation data. Add a folder val/ or test/ next to it."
        )
    present = list_classes(second, is_first=False)
    for name in present:
        if name not in folders:
            near = next((known for known in classes if known.casefold() == name.casefold()), None)
            advice = f"Did you mean {shown(near)}?" if near else "Add it there, or remove it here."
            raise DataError(
                f"class '{shown(name)}' is in {shown(second)}, but not in {shown(first)}. {advice}"
            )
    numbers = {name: number for number, name in enumerate(classes)}
    validation = list_files(second, present, labels=numbers)
    return Listings(
        classes,
        list_files(first, folders),
        validation,
        split=f"train/ to train on, {second.name}/ to validate on",
    )


def training_folder(root: Path) -> Path:
    """The folder that holds the class folders: train/, if there is one."""
    return root / "train" if os.path.isdir(root / "train") else root


def list_classes(folder: Path, *, is_first: bool = True) -> dict[str, str]:
    """Class names in order, each with its folder; DataError for fewer than two if `is_first`."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entry.name for entry in entries if entry.name[0] != "." and entry.is_dir())
    except OSError as error:
        raise DataError(
            f"can't read {shown(folder)} ({error.strerror}). Check its permissions, or pass another folder."
        ) from None
    classes: dict[str, str] = {}
    for name in found:
        if spelled(name) in classes:
            raise DataError(
                f"two folders in {shown(folder)} are called '{shown(name)}' in two Unicode forms. Merge them."
            )
        classes[spelled(name)] = name
    if is_first and len(classes) < 2:
        raise DataError(
            f"{shown(folder)} has {len(classes)} classes, and at least 2 are needed. Pass a folder with one "
            "folder of images per class."
        )
    if is_first and all(name.casefold() in PART_NAMES for name in classes):
        names = " and ".join(map(shown, classes))
        raise DataError(
            f"{shown(folder)} has {names}, which would be taken for classes. Rename them to train and val."
        )
    return {name: classes[name] for name in sorted(classes)}


def list_files(
    folder: Path,
    classes: dict[str, str],
    *,
    labels: dict[str, int] | None = None,
    warns: bool = True,
) -> Listing:
    """The image files of these classes, sorted; links are followed, hidden files are skipped."""
    labels = labels or {name: number for number, name in enumerate(classes)}
    names: list[str] = []
    numbers: list[int] = []
    odd: list[str] = []
    for name, place in classes.items():
        strange: list[str] = []
        found = sorted(_walk(folder / place, strange), key=lambda file: (spelled(file).split("/"), file))
        if not found:
            endings = ", ".join(sorted(ENDINGS)[:4])
            raise DataError(
                f"class '{shown(name)}' in {shown(folder)} has no images. Add some ({endings}...), or remove "
                "the folder."
            )
        odd += [f"{place}/{file}" for file in strange]
        names += [f"{place}/{file}" for file in found]
        numbers += [labels[name]] * len(found)
    if odd and warns:
        log.warning(
            "skipped %d entries in %s that are named like images but are not files, such as %s",
            len(odd),
            shown(folder),
            shown(odd[0]),
        )
    return Listing(folder, names, numbers)


def _walk(folder: Path, odd: list[str]) -> list[str]:
    """The names of image files below a folder; pipes, devices and broken links go to `odd`."""
    found: list[str] = []
    left, seen = [""], {os.path.realpath(folder)}
    while left:
        prefix = left.pop()
        try:
            with os.scandir(folder / prefix) as entries:
                here = sorted(
                    (entry for entry in entries if not entry.name.startswith(".")),
                    key=lambda entry: entry.name,
                )
            for entry in here:
                name = f"{prefix}{entry.name}"
                if entry.is_dir():
                    # Once each: a link to a parent folder would loop forever.
                    place = os.path.realpath(entry.path)
                    if place not in seen:
                        seen.add(place)
                        left.append(f"{name}/")
                elif is_image_name(entry.name):
                    (found if entry.is_file() else odd).append(name)
        except OSError as error:
            raise DataError(
                f"can't read {shown(folder / prefix)} ({error.strerror}). Check its permissions, or remove "
                "it."
            ) from None
    return found


def is_image_name(name: str) -> bool:
    """Whether a file has the extension of an image."""
    return os.path.splitext(name)[1].lower() in ENDINGS


def _split(found: Listing, classes: tuple[str, ...], seed: int) -> Listings:
    """Split by the hash of file name and seed.

    If a small class would be missing from one split, the file closest to the threshold changes sides.
    """
    of_class: dict[int, list[int]] = {}
    for number, label in enumerate(found.labels):
        of_class.setdefault(label, []).append(number)
    parts: tuple[list[int], list[int]] = ([], [])
    for label, numbers in of_class.items():
        if len(numbers) < 2:
            raise DataError(
                f"class '{shown(classes[label])}' in {shown(found.root)} has one image. Add a second one "
                "for validation."
            )
        chances = [number_of(found.names[number].partition("/")[2], seed) / 2**64 for number in numbers]
        validates = [chance < VALIDATION_SHARE for chance in chances]
        if not any(validates):
            validates[chances.index(min(chances))] = True
        elif all(validates):
            validates[chances.index(max(chances))] = False
        for number, is_validation in zip(numbers, validates, strict=True):
            parts[is_validation].append(number)
    train, validation = (found.only(part) for part in parts)
    words = f"split by file name and seed {seed}, about {VALIDATION_SHARE:.0%} of each class to validate on"
    return Listings(classes, train, validation, split=words)


def _warn_of_loose(folder: Path) -> None:
    loose = sorted(name for name in os.listdir(folder) if is_image_name(name) and not name.startswith("."))
    if loose:
        log.warning(
            "ignored %d images in %s that are in no class folder, such as %s",
            len(loose),
            shown(folder),
            shown(loose[0]),
        )


def _warn_of_alike(classes: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in classes:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            log.warning(
                "classes '%s' and '%s' differ in case only; they are treated as two classes",
                shown(other),
                shown(name),
            )
