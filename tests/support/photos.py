"""Folders of small images for tests: every image is seeded noise of its own, so that no two are the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from PIL import Image


def write_photo(path: Path, *, size: int = 12, content: str = "") -> None:
    """One image; its pixels depend on its name and on `content` alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f"{path.name}{path.parent.name}{content}".encode("utf-8", "surrogatepass")
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name).digest()[:6], "big"))
    pixels = torch.randint(0, 256, (size, size, 3), dtype=torch.uint8, generator=generator)
    Image.fromarray(pixels.numpy()).save(path)


def write_photos(
    folder: Path,
    *,
    classes: tuple[str, ...] = ("ant", "bee", "cat", "dog"),
    num_images: int = 20,
    size: int = 12,
) -> Path:
    """A folder with one folder per class."""
    for name in classes:
        for number in range(num_images):
            write_photo(folder / name / f"{name}{number}.png", size=size)
    return folder
