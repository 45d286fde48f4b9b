"""Image files that are decoded on the fly by worker processes.

A file that can't be decoded is logged and skipped; after `max_bad_images` of them the run stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from trainonce.data.augmentation import policy_transform
from trainonce.data.decoding import decode
from trainonce.data.file_names import shown
from trainonce.data.identity.describing import describe_files
from trainonce.data.listing import Listing
from trainonce.data.pictures import Normalization
from trainonce.data.sample_rng import mix
from trainonce.data.samples import Draw
from trainonce.data.workers import read_batches
from trainonce.errors import DataError

IMAGENET = Normalization(mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225))
RESIZE_SHARE = 0.875
"""The center crop of validation: 224 of 256 pixels."""

log = logging.getLogger("trainonce")


def training_transform(image_size: int, augment: str) -> v2.Transform:
    """Random resized crop, random flip, and the transform of the policy."""
    if augment == "none":
        return validation_transform(image_size)
    added = policy_transform(augment)
    steps = [v2.RandomResizedCrop(image_size, antialias=True), v2.RandomHorizontalFlip()]
    return v2.Compose(steps if added is None else [*steps, added])


def validation_transform(image_size: int) -> v2.Transform:
    """Resize and center crop."""
    return v2.Compose([v2.Resize(resized_side(image_size), antialias=True), v2.CenterCrop(image_size)])


def resized_side(image_size: int) -> int:
    """The shorter side of a validation image before its center is cut out."""
    return round(image_size / RESIZE_SHARE)


@dataclass(frozen=True, slots=True, eq=False)
class ImageFiles:
    """Images that are read when they are needed, with their labels."""

    listing: Listing
    labels: Tensor
    transform: v2.Transform
    num_workers: int
    max_bad_images: int
    replaces_bad: bool
    """Whether a broken image is replaced by another of the batch (training) or dropped (validation)."""

    bad: dict[Path, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.listing)

    def describe_identity(self) -> dict[str, Any]:
        """Names, sizes and contents of the files."""
        return describe_files(self.listing.root, self.listing.names, self.listing.labels, count=len(self))

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Tensor, Tensor]]:
        """Normalized images and labels for each draw."""
        for found in read_batches(_Reading(self), draws, num_workers=self.num_workers):
            if isinstance(found, DataError):
                raise found
            images, labels, broken = found
            self._note(broken)
            yield IMAGENET(images), labels

    def read(self, samples: Tensor, seed: int) -> tuple[Tensor, Tensor, list[tuple[str, str]]]:
        """One uint8 batch, its labels, and the files that could not be read."""
        images: list[Tensor] = []
        kept: list[int] = []
        broken: list[tuple[str, str]] = []
        with torch.random.fork_rng(devices=[]):
            for sample in samples.tolist():
                path = self.listing.path(sample)
                try:
                    image = decode(path)
                except OSError as error:
                    broken.append((str(path), str(error)))
                    continue
                torch.manual_seed(mix(seed, sample))
                images.append(self.transform(image))
                kept.append(sample)
        if not images:
            raise DataError(
                f"no image of a batch can be read, such as {shown(broken[0][0])} ({broken[0][1]}). Fix or "
                "remove them."
            )
        while self.replaces_bad and len(images) < len(samples):
            images.append(images[0])
            kept.append(kept[0])
        return torch.stack(images), self.labels[kept], broken

    def _note(self, broken: list[tuple[str, str]]) -> None:
        for name, reason in broken:
            if Path(name) not in self.bad:
                self.bad[Path(name)] = reason
                log.warning("skipped a broken image: %s (%s)", shown(name), reason)
        check_bad(self.bad, self.max_bad_images)


def check_bad(bad: dict[Path, str], limit: int) -> None:
    """Raise DataError if there are more broken files than the limit."""
    if len(bad) > limit:
        path, reason = next(reversed(bad.items()))
        raise DataError(
            f"{len(bad)} images can't be read, and the limit is {limit}; the last is {shown(path)} "
            f"({reason}). Fix or remove them, or raise --max-bad-images."
        )


class _Reading(Dataset[Any]):
    """A data set whose items are whole batches, indexed by draws."""

    def __init__(self, files: ImageFiles) -> None:
        self.files = files

    def __getitem__(self, draw: Any) -> Any:
        try:
            return self.files.read(*draw)
        except DataError as error:
            # An exception would arrive from the worker with its whole traceback; a value arrives as it is.
            return error
