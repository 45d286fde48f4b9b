"""Images that are made to keep a decoder busy or to fill memory are refused, at the cost of reading them."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from fuzzing.harness import try_case
from fuzzing.registry import refuse
from trainonce.data.decoding import decode


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()


def scans() -> bytes:
    """A progressive JPEG with its last scan 10,000 times: each takes 40 bytes and goes over all pixels."""
    whole = saved(Image.new("L", (3000, 3000), 77), "JPEG", progressive=True)
    last = whole[whole.rindex(b"\xff\xda") : -2]
    return whole[:-2] + last * 10_000 + b"\xff\xd9"


def exif_parts() -> bytes:
    """Pillow joins the parts one by one, each time with a copy."""
    whole = saved(Image.new("L", (8, 8)), "JPEG")
    return whole[:2] + b"\xff\xe1\x00\x10Exif\0\0abcdefgh" * 500_000 + whole[2:]


def markers() -> bytes:
    whole = saved(Image.new("L", (8, 8)), "JPEG")
    return whole[:2] + b"\xff" * 40_000_000 + whole[2:]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def profiles() -> bytes:
    """Color profiles of a megabyte of zeros each."""
    whole = saved(Image.new("L", (8, 8)), "PNG")
    return whole[:33] + chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1_000_000), 9)) * 20_000 + whole[33:]


def chunks() -> bytes:
    whole = saved(Image.new("L", (8, 8)), "PNG")
    return whole[:33] + chunk(b"abCd", b"") * 4_000_000 + whole[33:]


def comments() -> bytes:
    return b"P2\n2000 2000\n255\n" + b"#\n" * 1_500_000


def odd_maximum() -> bytes:
    """Pillow scales every value in Python."""
    return b"P6\n3000 3000\n300\n" + bytes(3000 * 3000 * 6)


def runs() -> bytes:
    """Rows of one pixel each, which Pillow fills up in Python, pixel by pixel."""
    rows, width, palette = b"\x01\x00\x00\x00" * 13_000, 13_000, bytes(1024)
    rows += b"\x00\x01" + bytes(5_000_000)
    header = struct.pack("<IiiHHIIiiII", 40, width, width, 1, 8, 1, len(rows), 1, 1, 256, 256)
    return b"BM" + struct.pack("<IHHI", 1078 + len(rows), 0, 0, 1078) + header + palette + rows


def tile() -> bytes:
    """A picture of 64 pixels in a tile of 20,000."""
    data = zlib.compress(bytes(20_000 * 20_000), 9)
    tags = {
        256: 64,
        257: 64,
        258: 8,
        259: 8,
        262: 1,
        277: 1,
        322: 20_000,
        323: 20_000,
        324: 134,
        325: len(data),
    }
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data


BOMBS: dict[str, Callable[[], bytes]] = {
    found.__name__: found
    for found in (scans, exif_parts, markers, profiles, chunks, comments, odd_maximum, runs, tile)
}


def told(path: Path) -> None:
    try:
        decode(path)
    except OSError as error:
        refuse(str(error))


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_bomb_is_refused_within_the_limits_of_time_and_memory(tmp_path: Path, name: str):
    path = tmp_path / "x.jpg"
    path.write_bytes(BOMBS[name]())
    verdict, fault = try_case(lambda: told(path), path.stat().st_size)
    assert fault is None
    assert verdict is not None


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "JPEG", "TIFF"])
def test_a_file_with_a_hole_is_not_read_to_its_end(tmp_path: Path, kind: str):
    path = tmp_path / "x.jpg"
    # Of a GIF only the header: its first picture is looked for in all that follows.
    path.write_bytes(saved(Image.new("L", (8, 8)), kind)[: 13 + 768 if kind == "GIF" else None])
    os.truncate(path, 2**35)
    verdict, fault = try_case(lambda: told(path), 0)
    assert (fault, verdict) == (None, "Told")


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "I;16"])
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_the_largest_plain_image_fits_into_the_memory(tmp_path: Path, kind: str, mode: str):
    path = tmp_path / "x.jpg"
    options = {"compression": "tiff_adobe_deflate"} if kind == "TIFF" else {}
    path.write_bytes(saved(Image.new(mode, (4000, 3000)), kind, **options))
    assert try_case(lambda: told(path), path.stat().st_size) == (None, None)


def test_photos_of_every_kind_are_still_taken(tmp_path: Path):
    noise = torch.randint(0, 256, (60, 90, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    photo = Image.fromarray(noise.numpy()).resize((900, 600))
    files = [
        saved(photo, "JPEG", progressive=True, exif=b"Exif\0\0" + bytes(60_000), icc_profile=bytes(300_000)),
        saved(photo, "PNG", icc_profile=bytes(300_000)),
        saved(photo.convert("P"), "BMP"),
        b"P3\n# a comment\n90 60\n255\n"
        + " ".join(str(value) for value in noise.flatten().tolist()).encode(),
    ]
    for content in files:
        (tmp_path / "x.jpg").write_bytes(content)
        assert decode(tmp_path / "x.jpg").shape[0] == 3
