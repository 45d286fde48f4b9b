"""CIFAR-10 and CIFAR-100 from torchvision, in memory: 50,000 and 10,000 images of 32 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torchvision import datasets

from trainonce.data.catalogue import DataOptions, DataSet, Shape, dataset, expanded
from trainonce.data.file_names import shown
from trainonce.data.resizing import in_memory
from trainonce.errors import DataError
from trainonce.messages.plain_text import reason_of

DEFAULT_FOLDER = Path("~/.cache/trainonce")


@dataset("cifar10", shape=Shape(num_classes=10, image_size=32))
def open_cifar10(_: str, options: DataOptions) -> DataSet:
    """CIFAR-10."""
    return _open("cifar10", datasets.CIFAR10, options)


@dataset("cifar100", shape=Shape(num_classes=100, image_size=32))
def open_cifar100(_: str, options: DataOptions) -> DataSet:
    """CIFAR-100."""
    return _open("cifar100", datasets.CIFAR100, options)


def _open(name: str, kind: Any, options: DataOptions) -> DataSet:
    parts = [through_torchvision(name, kind, options, train=train) for train in (True, False)]
    train, validation = (
        (
            torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous(),
            torch.tensor(part.targets, dtype=torch.long),
        )
        for part in parts
    )
    return in_memory(name, tuple(parts[0].classes), train, validation, options, flips=True)


def through_torchvision(name: str, kind: Any, options: DataOptions, *, train: bool) -> Any:
    """A torchvision data set, downloaded if it is missing; torchvision verifies its checksums."""
    root = _find_root(name, options)
    try:
        return kind(root, train=train, download=False)
    except OSError as error:
        raise DataError(
            f"can't read {name} in {shown(root)} ({shown(error)}). Check its permissions, or pass "
            "another --data-dir."
        ) from None
    except RuntimeError:
        if not options.download:
            raise DataError(
                f"{name} is not in {shown(root)}, or damaged. Put its files there, or pass --download."
            ) from None
    try:
        root.mkdir(parents=True, exist_ok=True)
        return kind(root, train=train, download=True)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{name} is not in {shown(root)} and can't be downloaded ({reason_of(error)}). Pass the folder "
            "of its files as --data-dir."
        ) from None


def _find_root(name: str, options: DataOptions) -> Path:
    if options.data_dir is not None:
        return expanded(options.data_dir)
    try:
        return DEFAULT_FOLDER.expanduser()
    except RuntimeError:
        raise DataError(
            f"there is no home folder to keep {name} in. Pass a folder for its files as --data-dir."
        ) from None
