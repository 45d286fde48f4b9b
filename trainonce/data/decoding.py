"""Image decoding: a file in, a uint8 tensor out, or an OSError that says what is wrong.

Files are not trusted: they may hide another format behind a known extension, be a pipe, or fill the memory.
"""

from __future__ import annotations

import io
import os
import stat
import struct
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
from trainonce.messages.plain_text import reason_of

FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
"""The formats of the accepted extensions. Pillow knows more, and starts Ghostscript for one of them (EPS)."""
ENDINGS = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"))


def decode(path: Path) -> Tensor:
    """The image as uint8 RGB; the first frame, if there are several."""
    with _readable(path) as image:
        image.load()
        return _as_tensor(image)


def read_shorter_side(path: Path) -> int:
    """Pixels of the shorter side, from the file's header."""
    with _readable(path) as image:
        return min(image.size)


@contextmanager
def _readable(path: Path) -> Iterator[Image.Image]:
    """An image of an accepted format and size; every failure inside becomes an OSError."""
    # Truncated files are an error, even if another library has changed this.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with warnings.catch_warnings(), _opened(path) as stream:
            # About odd metadata and large sizes; what matters is checked here.
            warnings.simplefilter("ignore")
            check_file(stream)
            with _identified(stream) as image:
                check_image(image, stream)
                yield image
    except Image.UnidentifiedImageError:
        raise OSError(f"not an image of a known format: {', '.join(FORMATS)}") from None
    except Exception as error:
        # Decoders fail on broken files in every way: struct.error, IndexError, OverflowError, MemoryError.
        system = error.strerror if isinstance(error, OSError) else None
        raise OSError(system or reason_of(error)) from None


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    # A pipe would block until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with Metered(io.FileIO(descriptor)) as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        yield stream


def _identified(stream: BinaryIO) -> Image.Image:
    """The image in a stream, by its first bytes; UnidentifiedImageError if no accepted format takes it.

    As `Image.open` does it, which other libraries replace: Ultralytics' one installs packages.
    """
    Image.init()
    start = stream.read(16)
    for name in FORMATS:
        make, accepts = Image.OPEN[name]
        # Some answer with words, which say why they can't.
        if accepts is None or accepts(start) is True:
            stream.seek(0)
            try:
                return make(stream, "")
            except (SyntaxError, IndexError, TypeError, struct.error):
                # How Pillow's readers say that a file is not theirs.
                continue
    raise Image.UnidentifiedImageError


def _as_tensor(image: Image.Image) -> Tensor:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        # 16-bit gray: Pillow's conversion to RGB would make all but the darkest pixels white.
        gray_1HW = v2.functional.pil_to_tensor(image.convert("I")).clamp(0, 65535) >> 8
        return gray_1HW.to(torch.uint8).repeat(3, 1, 1)
    return v2.functional.pil_to_tensor(image if image.mode == "RGB" else image.convert("RGB"))
