"""The cost of decoding a file: images made to fill the memory or keep a decoder busy are refused.

Takes an image as it is opened, before its pixels are decoded, and raises OSError. The limits are far above
what cameras, scanners and drawing programs write.
"""

from __future__ import annotations

import io
import os
import re
from typing import BinaryIO

from PIL import Image

MAX_BYTES = 2**27
"""Of a file. Pillow reads and copies a whole WebP before it looks at its pixels."""
MAX_PIXELS = 178_956_970
"""Pillow's own limit for decompression bombs."""
FREE_PIXELS = 12_000_000
"""Decoding takes 10 to 20 bytes per pixel."""
MAX_PIXELS_PER_BYTE = 40
"""For images above FREE_PIXELS. The plainest photos have 20 pixels per byte, bombs thousands."""
MAX_ASPECT = 100
"""A longer strip would fill the memory when its shorter side is scaled up."""
MAX_READS = 1_000_000
"""Of a few bytes each: an endless header takes more."""
MAX_REPEATS = 64
"""Of metadata that a file has once, or once per picture: Pillow copies or decompresses all of it."""
MAX_SCANNED_PIXELS = 4_000_000_000
"""Of a JPEG: pixels times scans, as each scan covers the whole picture. Progressive ones have about 10."""
MAX_COMMENTS = 1000
"""In a PPM of plain text: Pillow copies a block of the file for each."""
MAX_SLOW_VALUES = 8_000_000
"""Pixels times colors that Pillow decodes in Python, one after the other."""

_SLOW_CODECS = ("bmp_rle", "ppm", "ppm_plain")
_METADATA = {b"\xff\xd8\xff": b"Exif\0\0", b"\x89PN": b"iCCP"}
"""How JPEG and PNG begin, and how metadata does in them."""
_SCAN = b"\xff\xda"
_WHOLE_SCAN = re.compile(_SCAN + rb"\x00(?:\x08\x01|\x0a\x02|\x0c\x03|\x0e\x04)")
"""The head of a scan; compressed pixels can't hold these bytes, and other data hardly ever does."""
_TILE_WIDTH, _TILE_HEIGHT = 322, 323


class Metered(io.BufferedReader):
    """A file that can't be read without end in small steps."""

    num_reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes; OSError after MAX_READS reads."""
        self.num_reads += 1
        if self.num_reads > MAX_READS:
            raise OSError("its header has no end")
        return super().read(size)


def check_file(stream: BinaryIO) -> None:
    """Refuse a file that is larger than any image, or whose metadata takes too long to read."""
    if _size(stream) > MAX_BYTES:
        raise OSError(f"{_size(stream)} bytes is too large for an image")
    metadata = _METADATA.get(stream.read(3))
    if metadata is not None and _content(stream).count(metadata) > MAX_REPEATS:
        raise OSError(f"more than {MAX_REPEATS} metadata blocks of one kind")
    stream.seek(0)


def check_image(image: Image.Image, stream: BinaryIO) -> None:
    """Refuse an opened image with too many pixels for its file, or with pixels that take long to decode."""
    width, height = image.size
    if min(width, height) < 1:
        raise OSError(f"{width} x {height} pixels")
    _check_pixels(width, height, _size(stream))
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise OSError(f"{width} x {height} pixels: one side is more than {MAX_ASPECT} times the other")
    tags = getattr(image, "tag_v2", {})
    if _TILE_WIDTH in tags and _TILE_HEIGHT in tags:
        # A whole tile is decoded, also where the picture ends inside it.
        _check_pixels(tags[_TILE_WIDTH], tags[_TILE_HEIGHT], _size(stream))
    codecs = {part[0] for part in getattr(image, "tile", ())}
    if codecs.intersection(_SLOW_CODECS) and width * height * len(image.getbands()) > MAX_SLOW_VALUES:
        raise OSError(
            f"{width} x {height} pixels in an unusual {image.format} encoding would take "
            "too long to decode. Save it as PNG"
        )
    if "ppm_plain" in codecs and _content(stream).count(b"#") > MAX_COMMENTS:
        raise OSError(f"more than {MAX_COMMENTS} comments")
    if "jpeg" in codecs:
        _check_scans(width, height, _content(stream))


def _check_scans(width: int, height: int, content: bytes) -> None:
    most = MAX_SCANNED_PIXELS // (width * height)
    if content.count(_SCAN) > most and len(_WHOLE_SCAN.findall(content)) > most:
        raise OSError(f"{width} x {height} pixels in more than {most} scans")


def _check_pixels(width: int, height: int, num_bytes: int) -> None:
    if width * height > min(MAX_PIXELS, max(FREE_PIXELS, MAX_PIXELS_PER_BYTE * num_bytes)):
        raise OSError(f"{width} x {height} pixels in {num_bytes} bytes looks like a decompression bomb")


def _size(stream: BinaryIO) -> int:
    return os.fstat(stream.fileno()).st_size


def _content(stream: BinaryIO) -> bytes:
    stream.seek(0)
    return stream.read()
