"""Folders of small images, one per class."""

from pathlib import Path

from PIL import Image
from torch import Tensor


def one_batch(samples, draw: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    return next(iter(samples.batches([(draw, seed)])))


def write_image(path: Path, shade: int, size: int = 12) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (shade, shade, shade)).save(path)


def write_classes(folder: Path, *, num_images: int, size: int = 12) -> None:
    for number, name in enumerate(("cat", "dog")):
        for image in range(num_images):
            write_image(folder / name / f"{image}.png", 100 * number + image, size)
