"""The size that a folder's images are used at, chosen so that none is upscaled."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from statistics import median_low

from trainonce.data.decoding import read_shorter_side
from trainonce.data.file_names import number_of
from trainonce.data.listing import list_files

LARGEST_SIZE = 224
"""Photos are used at this size by default."""
SMALLEST_SIZE = 4
NUM_CLASSES_LOOKED_AT = 16
NUM_IMAGES_LOOKED_AT = 8
"""Per class."""


def typical_side(folder: Path, classes: dict[str, str]) -> int | None:
    """The median shorter side of a fixed choice of images; None if none of them can be read."""
    chosen = sorted(classes, key=number_of)[:NUM_CLASSES_LOOKED_AT]
    sides: list[int] = []
    for name in chosen:
        listing = list_files(folder, {name: classes[name]}, warns=False)
        for file in sorted(listing.names, key=number_of)[:NUM_IMAGES_LOOKED_AT]:
            # Broken files are reported when their pixels are read.
            with suppress(OSError):
                sides.append(read_shorter_side(folder / file))
    return median_low(sides) if sides else None


def own_size(side: int | None) -> int:
    """The size that images with this shorter side are used at, never upscaled.

    At most 224; multiples of 32 from 64 on, because deep models halve them five times, of 8 from 32 on.
    """
    if side is None or side >= LARGEST_SIZE:
        return LARGEST_SIZE
    step = 32 if side >= 64 else 8 if side >= 32 else 1
    return max(SMALLEST_SIZE, side // step * step)


def describe_sizes(side: int | None, size: int) -> str:
    """The change of size, in words."""
    if side is None:
        return f"images are used at {size} pixels"
    if side == size:
        return f"images of {size} pixels, used as they are"
    if side > size:
        return f"images of about {side} pixels (shorter side) are downscaled to {size}"
    advice = f"--img-size {own_size(side)} would not upscale them"
    return f"images of about {side} pixels (shorter side) are upscaled to {size}; {advice}"
