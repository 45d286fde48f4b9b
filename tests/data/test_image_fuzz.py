"""Broken images, by the hundred: whatever is done to a file, it gives an image or one line.

`TRAINONCE_FUZZ_CASES=100000 python -m pytest tests/test_image_fuzz.py` tries more of them.
"""

import io
import os
import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from trainonce.data.decoding import decode

FORMATS = ("JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP", "PPM")
CASES_PER_FORMAT = int(os.environ.get("TRAINONCE_FUZZ_CASES", "2100")) // len(FORMATS)
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def valid_images(kind: str, seed: int) -> list[bytes]:
    """Files of one format from seeded noise, in every variant that is written differently."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (11, 13, 3), dtype=torch.uint8, generator=generator)
    image = Image.fromarray(pixels.numpy())
    variants: list[tuple[Image.Image, dict]] = [(image, {})]
    if kind == "TIFF":
        names = ("tiff_lzw", "jpeg", "tiff_adobe_deflate", "packbits")
        variants += [(image, {"compression": name}) for name in names]
        variants += [(image.convert("1"), {"compression": "group4"}), (image.convert("I;16"), {})]
    elif kind == "JPEG":
        variants += [(image, {"progressive": True}), (image.convert("CMYK"), {})]
    elif kind == "PNG":
        variants += [(image.convert("P"), {}), (image.convert("I;16"), {}), (image.convert("RGBA"), {})]
    elif kind == "GIF":
        frames = [image.rotate(90), image.rotate(180)]
        variants += [(image, {"save_all": True, "append_images": frames, "loop": 0})]
    elif kind == "WEBP":
        variants += [
            (image, {"lossless": True}),
            (image, {"save_all": True, "append_images": [image.rotate(180)]}),
        ]
    elif kind == "PPM":
        variants += [(image.convert("1"), {}), (image.convert("L"), {}), (image.convert("F"), {})]
    found = []
    for one, options in variants:
        content = io.BytesIO()
        one.save(content, format=kind, **options)
        found.append(content.getvalue())
    return found


def mutated(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """The file with bytes flipped, cut, repeated, taken from another file, or set to extreme numbers."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        place = chance.randrange(max(1, min(len(changed), chance.choice((24, 64, len(changed) or 1)))))
        what = chance.randrange(7)
        if what == 0 and changed:
            changed[place] ^= 1 << chance.randrange(8)
        elif what == 1:
            del changed[place:]
        elif what == 2:
            length = chance.randrange(1, 40)
            changed[place : place + length] = other[place : place + length]
        elif what == 3:
            width = chance.choice((1, 2, 4))
            number = chance.choice(NUMBERS) & ((1 << 8 * width) - 1)
            changed[place : place + width] = number.to_bytes(width, chance.choice(("little", "big")))
        elif what == 4:
            changed[place:place] = changed[place : place + chance.randrange(1, 40)]
        elif what == 5:
            del changed[place : place + chance.randrange(1, 20)]
        else:
            changed[place : place + 4] = chance.randbytes(4)
    return bytes(changed)


def mutated_images(kind: str, count: int, seed: int = 0) -> Iterator[bytes]:
    """Broken files of one format, always the same ones."""
    chance = random.Random(f"{kind} {seed}")
    valid, others = (
        valid_images(kind, seed),
        [content for other in FORMATS for content in valid_images(other, seed + 1)],
    )
    for _ in range(count):
        yield mutated(chance.choice(valid), chance.choice([*valid, *others]), chance)


@pytest.mark.parametrize("kind", FORMATS)
def test_valid_images_are_decoded(kind: str, tmp_path: Path):
    for number, content in enumerate(valid_images(kind, 0)):
        path = tmp_path / f"{number}.png"
        path.write_bytes(content)
        assert decode(path).shape == (3, 11, 13)


def complaint(path: Path) -> str | None:
    """What decoding says about a file, or None if it gives an image."""
    try:
        image = decode(path)
    except OSError as error:
        return str(error) if type(error) is OSError else f"\n{error!r}"
    assert (image.dtype, image.dim(), image.shape[0]) == (torch.uint8, 3, 3)
    assert image.numel() > 0
    return None


@pytest.mark.parametrize("kind", FORMATS)
def test_a_broken_file_gives_an_image_or_one_line(kind: str, tmp_path: Path):
    path, num_refused = tmp_path / "x.jpg", 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, content in enumerate(mutated_images(kind, CASES_PER_FORMAT)):
            path.write_bytes(content)
            said = complaint(path)
            num_refused += said is not None
            assert said is None or (said and said.isprintable()), f"case {number}: {said!r}"
    assert 0 < num_refused < CASES_PER_FORMAT
