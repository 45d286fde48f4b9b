"""From a file to pixels: takes a path, gives an image as bytes, or an OSError that says what is wrong.

A stranger's file may be anything: another format under a known ending, a pipe, a picture that fills memory.
"""

from __future__ import annotations

import io
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from PIL import Image, ImageFile
from torch import Tensor
from torchvision.transforms import v2

from trainonce.data.workload import Metered, check_file, check_image
from trainonce.naming import shown

FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
"""What the accepted endings stand for. Pillow knows more, and starts Ghostscript for one of them (EPS)."""
ENDINGS = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"))


def decode(path: Path) -> Tensor:
    """The image as bytes, three colours; of several frames the first."""
    with _readable(path) as image:
        image.load()
        return _as_tensor(image)


def read_shorter_side(path: Path) -> int:
    """Pixels of the shorter side, from the first bytes of the file alone."""
    with _readable(path) as image:
        return min(image.size)


@contextmanager
def _readable(path: Path) -> Iterator[Image.Image]:
    """An image of an accepted format and a bearable size; whatever fails inside is an OSError."""
    # A truncated file is an error, whatever another library has set.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with warnings.catch_warnings(), _opened(path) as stream:
            # Odd metadata and large sizes; what matters of them is checked here.
            warnings.simplefilter("ignore")
            check_file(stream)
            with Image.open(stream, formats=FORMATS) as image:
                check_image(image, stream)
                yield image
    except Image.UnidentifiedImageError:
        raise OSError(f"no image of a known format: {', '.join(FORMATS)}") from None
    except Exception as error:
        # Decoders of broken files fail in every way: struct.error, IndexError, OverflowError, MemoryError.
        system = error.strerror if isinstance(error, OSError) else None
        reason = system or str(error) or type(error).__name__
        raise OSError(shown(" ".join(reason.split()))) from None


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    # A pipe would wait for a writer, for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with Metered(io.FileIO(descriptor)) as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        yield stream


def _as_tensor(image: Image.Image) -> Tensor:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        # Sixteen bits of grey; Pillow's own way to three colours would make all but the darkest pixels white.
        grey_1HW = v2.functional.pil_to_tensor(image.convert("I")).clamp(0, 65535) >> 8
        return grey_1HW.to(torch.uint8).repeat(3, 1, 1)
    return v2.functional.pil_to_tensor(image if image.mode == "RGB" else image.convert("RGB"))
