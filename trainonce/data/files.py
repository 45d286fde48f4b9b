"""Images that stay in their files.

Takes paths and labels, gives batches that other processes read and decode.

A file that can't be decoded is named in the log and left out; after `max_bad_images` of them the run stops.
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
from trainonce.data.pictures import Normalisation
from trainonce.data.sample_rng import mix
from trainonce.data.samples import Draw
from trainonce.data.workers import read_batches
from trainonce.errors import DataError

IMAGENET = Normalisation(mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225))
RESIZE_SHARE = 0.875
"""The part of the picture that validation looks at: 224 of 256 pixels."""

log = logging.getLogger("trainonce")


def training_transform(image_size: int, augment: str) -> v2.Transform:
    """A random part of the picture in the wanted size, mirrored half of the time, and the policy's own changes."""
    if augment == "none":
        return validation_transform(image_size)
    added = policy_transform(augment)
    steps = [v2.RandomResizedCrop(image_size, antialias=True), v2.RandomHorizontalFlip()]
    return v2.Compose(steps if added is None else [*steps, added])


def validation_transform(image_size: int) -> v2.Transform:
    """The middle of the picture."""
    return v2.Compose(
        [v2.Resize(round(image_size / RESIZE_SHARE), antialias=True), v2.CenterCrop(image_size)]
    )


@dataclass(frozen=True, slots=True, eq=False)
class ImageFiles:
    """Images and labels that are read when they are needed."""

    listing: Listing
    labels: Tensor
    transform: v2.Transform
    num_workers: int
    max_bad_images: int
    replaces_bad: bool
    """Whether another image of the batch takes the place of a broken one (training), or the batch gets smaller (validation)."""

    bad: dict[Path, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.listing)

    def describe_identity(self) -> dict[str, Any]:
        """Names, sizes and contents of the files."""
        return describe_files(self.listing.root, self.listing.names, self.listing.labels, count=len(self))

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each draw of sample numbers and a seed: normalised images, and their labels."""
        for found in read_batches(_Reading(self), draws, num_workers=self.num_workers):
            if isinstance(found, DataError):
                raise found
            images, labels, broken = found
            self._note(broken)
            yield IMAGENET(images), labels

    def read(self, samples: Tensor, seed: int) -> tuple[Tensor, Tensor, list[tuple[str, str]]]:
        """One batch of bytes, its labels, and the files that could not be read."""
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
                f"no image of a batch can be read, such as {shown(broken[0][0])} ({broken[0][1]}). Mend or "
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
    """Raise DataError when more files are broken than may be."""
    if len(bad) > limit:
        path, reason = next(reversed(bad.items()))
        raise DataError(
            f"{len(bad)} images can't be read, more than the {limit} that are allowed; "
            f"the last is {shown(path)} ({reason}). "
            f"Mend or remove them, or allow more with --max-bad-images."
        )


class _Reading(Dataset[Any]):
    """What a reading process holds: a draw in, a batch out."""

    def __init__(self, files: ImageFiles) -> None:
        self.files = files

    def __getitem__(self, draw: Any) -> Any:
        try:
            return self.files.read(*draw)
        except DataError as error:
            # An error that a process raises arrives with its whole traceback; as a value it arrives as it is.
            return error
