"""Small images in memory.

Takes a folder (or a tar) of images or nothing, gives one tensor each to train and to test on.

A folder has `train/CLASS/IMAGE` and `test/CLASS/IMAGE`, or `raw/` with the four files of MNIST and its kin;
without one, scikit-learn's digits are used. Batches depend on seed and epoch only, through numpy's
frozen generator, so that every contender sees the same ones whatever its version of torch.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.sheets.sheet import CACHE
from benchmarks.sheets.waiting import waiting

KINDLY = (
    "no folder of images was given (--data PATH, with train/CLASS/ and test/CLASS/ inside): using "
    "scikit-learn's digits instead."
)
_DIGITS_TO_TRAIN = 1437


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Bytes of shape (images, colours, height, width), and a class for each."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def num_colours(self) -> int:
        return self.train_images.shape[1]

    def example(self, num_images: int = 2) -> Tensor:
        """A few images as the model sees them."""
        return self.normalised(self.train_images[:num_images])

    def normalised(self, images: Tensor) -> Tensor:
        """As float32, about zero mean and unit scale, channels last."""
        return images.float().sub_(128).div_(64).contiguous(memory_format=torch.channels_last)

    def first(self, num_images: int) -> Images:
        """The same with fewer images to train on."""
        first = {
            "train_images": self.train_images[:num_images],
            "train_labels": self.train_labels[:num_images],
        }
        return replace(self, **first)

    def for_validation(self, share: float = 0.1) -> Images:
        """Settings are tuned on this: the last tenth of the training images takes the place of the test's."""
        num_left = len(self.train_images) - round(share * len(self.train_images))
        return replace(
            self.first(num_left),
            name=f"{self.name}, tested on a tenth of the training images",
            test_images=self.train_images[num_left:],
            test_labels=self.train_labels[num_left:],
        )

    def steps_per_epoch(self, batch_size: int) -> int:
        return len(self.train_images) // batch_size

    def batches(self, *, seed: int, epoch: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch, shuffled and augmented."""
        random = numpy.random.RandomState([seed, epoch])
        order = torch.from_numpy(random.permutation(len(self.train_images)))
        for number in range(self.steps_per_epoch(batch_size)):
            chosen = order[number * batch_size : (number + 1) * batch_size]
            yield self._batch(chosen, random)

    def held_batch(
        self, *, seed: int, step: int, batch_size: int, share: float = 0.05
    ) -> tuple[Tensor, Tensor]:
        """A batch for the controller, from a fixed share of the images to train on."""
        num_held = max(1, round(share * len(self.train_images)))
        held = numpy.random.RandomState([seed, 1_000_003]).permutation(len(self.train_images))[:num_held]
        random = numpy.random.RandomState([seed, 1_000_033, step])
        chosen = torch.from_numpy(random.choice(held, min(batch_size, num_held), replace=False))
        return self._batch(chosen, random)

    def _batch(self, chosen: Tensor, random: numpy.random.RandomState) -> tuple[Tensor, Tensor]:
        return self.normalised(_augmented(self.train_images[chosen], random)), self.train_labels[chosen]


@torch.no_grad()
def predict(model: torch.nn.Module, images: Images, *, batch_size: int = 500) -> Tensor:
    """What the model in eval mode says on every test image; its mode is put back."""
    was_training = model.training
    model.eval()
    dtype = next(model.parameters()).dtype
    outputs = [model(images.normalised(part).to(dtype)) for part in images.test_images.split(batch_size)]
    model.train(was_training)
    return torch.cat(outputs)


def accuracy_of(outputs: Tensor, images: Images) -> float:
    """The share of test images whose class is right, in %."""
    return 100 * float((outputs.argmax(1) == images.test_labels).float().mean())


def has_images(path: str | None) -> bool:
    """Whether images were named, and are there."""
    return path is not None and path != "digits" and _place(path).exists()


def _place(path: str) -> Path:
    return Path(path.removeprefix("folder:")).expanduser()


def load_images(path: str | None) -> Images:
    """The images of a folder or a tar; of nothing, the digits."""
    if path is None or path == "digits":
        if path is None:
            print(KINDLY, file=sys.stderr)
        return _digits()
    place = _place(path)
    if not place.exists():
        print(f"there is no {place}; {KINDLY}", file=sys.stderr)
        return _digits()
    status = place.stat()
    mark = hashlib.sha256(f"{place.resolve()} {status.st_mtime_ns} {status.st_size}".encode()).hexdigest()
    return _cached(f"the images of {place.name.removesuffix('.tar.gz')}", mark[:16], lambda: _decoded(place))


def _digits() -> Images:
    return _cached("digits", "digits", _read_digits)


def _cached(name: str, mark: str, read: Callable[[], dict[str, Tensor]]) -> Images:
    cached = CACHE / "images" / f"{mark}.safetensors"
    if not cached.exists():
        tensors = read()
        cached.parent.mkdir(parents=True, exist_ok=True)
        # Several children may come here at once: each writes a file of its own.
        unfinished = cached.with_suffix(f".{os.getpid()}.new")
        save_file(tensors, unfinished)
        unfinished.replace(cached)
    return Images(name=name, **load_file(cached))


def _split(part: str, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {f"{part}_images": images.contiguous(), f"{part}_labels": labels.contiguous()}


def _read_digits() -> dict[str, Tensor]:
    # Missing in the peer's environment, which finds them in the cache.
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).reshape(-1, 1, 8, 8).mul(15.9).to(torch.uint8)
    classes = torch.from_numpy(labels).long()
    order = torch.from_numpy(numpy.random.RandomState(0).permutation(len(images)))
    train, test = order[:_DIGITS_TO_TRAIN], order[_DIGITS_TO_TRAIN:]
    return _split("train", images[train], classes[train]) | _split("test", images[test], classes[test])


def _decoded(place: Path) -> dict[str, Tensor]:
    if (place / "raw").is_dir():
        return _read_idx(place / "raw")
    from PIL import Image  # only for the first reading

    files = sorted(_files(place))
    classes = sorted({name for _, name, _, _ in files})
    found: dict[str, tuple[list[Tensor], list[int]]] = {"train": ([], []), "test": ([], [])}
    with waiting(len(files), "reading images") as bar:
        for part, name, _, content in files:
            pixels = numpy.array(Image.open(io.BytesIO(content)).convert("RGB"))
            found[part][0].append(torch.from_numpy(pixels).permute(2, 0, 1))
            found[part][1].append(classes.index(name))
            bar.advance()
    tensors: dict[str, Tensor] = {}
    for part, (images, labels) in found.items():
        if not images:
            raise SystemExit(
                f"{place} has no {part}/CLASS/IMAGE. Give a folder with train/ and test/ inside."
            )
        # Files come class by class; in any order, the first of them are a fair sample.
        order = torch.from_numpy(numpy.random.RandomState(0).permutation(len(images)))
        tensors |= _split(part, torch.stack(images)[order], torch.tensor(labels)[order])
    return tensors


def _read_idx(folder: Path) -> dict[str, Tensor]:
    """The files of MNIST and its kin: 16 or 8 bytes of heading, then bytes; padded to 32 x 32."""
    tensors: dict[str, Tensor] = {}
    for part, name in (("train", "train"), ("test", "t10k")):
        pixels = numpy.fromfile(folder / f"{name}-images-idx3-ubyte", dtype=numpy.uint8, offset=16)
        classes = numpy.fromfile(folder / f"{name}-labels-idx1-ubyte", dtype=numpy.uint8, offset=8)
        images = torch.from_numpy(pixels).view(-1, 1, 28, 28)
        tensors |= _split(part, torch.nn.functional.pad(images, (2,) * 4), torch.from_numpy(classes).long())
    return tensors


def _files(place: Path) -> Iterator[tuple[str, str, str, bytes]]:
    """Part, class, name and content of every image."""
    if place.is_dir():
        for file in place.glob("*/*/*"):
            part, name, image = file.relative_to(place).parts
            if part in ("train", "test"):
                yield part, name, image, file.read_bytes()
        return
    with tarfile.open(place) as archive:
        for member in archive:
            *_, part, name, image = ("", "", "", *Path(member.name).parts)
            content = archive.extractfile(member) if part in ("train", "test") and member.isfile() else None
            if content is not None:
                yield part, name, image, content.read()


def _augmented(images: Tensor, random: numpy.random.RandomState) -> Tensor:
    """Each image moved by up to an eighth of its size, and mirrored at random if it has colours."""
    num_images, num_colours, height, width = images.shape
    reach = height // 8
    rows = torch.from_numpy(random.randint(0, 2 * reach + 1, (num_images, 1))) + torch.arange(height)
    columns = torch.from_numpy(random.randint(0, 2 * reach + 1, (num_images, 1))) + torch.arange(width)
    mirrored = torch.from_numpy(random.randint(0, 2, num_images).astype(bool))
    if num_colours == 3:
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    padded = torch.nn.functional.pad(images, (reach,) * 4).permute(0, 2, 3, 1)
    return padded[torch.arange(num_images)[:, None, None], rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )
