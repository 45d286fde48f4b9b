"""A folder of images with a broken one among them: the data set opens, or one line names the file."""

from __future__ import annotations

import io
import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from fuzzing.mutation import flipped, truncated, write_sparse
from fuzzing.registry import Attempt, Trial, target
from support.photos import write_photo
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.data.decoding import FORMATS, decode

SIZE = 8
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


@target("image", cases=1500)
def image(place: Path) -> Trial:
    case = place / "photos" / "train" / "ant" / "case.jpg"
    for part in ("train", "val"):
        for name in ("ant", "bee"):
            write_photo(place / "photos" / part / name / "1.png")
    files = [content for kind in FORMATS for content in valid_images(kind)]
    for content in files:
        case.write_bytes(content)
        # Fuzzing a file that is refused undamaged would show nothing.
        assert decode(case).shape == (3, 11, 13)

    def trial(dice: random.Random) -> Attempt:
        remove(case)
        case.write_bytes(dice.choice(files))
        dice.choice(DAMAGES)(case, dice.choice(files), dice)
        return lambda: open_photos(place / "photos")

    return trial


def open_photos(folder: Path) -> str:
    """Read all images of a folder, none of which may be broken."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found: Any = open_data(f"folder:{folder}", DataOptions(image_size=SIZE, max_bad_images=0)).train
    assert found.images_NCHW.dtype == torch.uint8
    # What is no file at all is not among the images.
    assert tuple(found.images_NCHW.shape) in ((2, 3, SIZE, SIZE), (3, 3, SIZE, SIZE))
    return "opened"


def remove(case: Path) -> None:
    """Make room for the next case, whatever the last one has left."""
    if case.is_dir() and not case.is_symlink():
        shutil.rmtree(case)
    else:
        case.unlink(missing_ok=True)


def valid_images(kind: str) -> list[bytes]:
    """Files of one format from seeded noise, in every variant that is written differently."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (11, 13, 3), dtype=torch.uint8, generator=generator)
    noise = Image.fromarray(pixels.numpy())
    variants: list[tuple[Image.Image, dict[str, Any]]] = [(noise, {})]
    if kind == "TIFF":
        names = ("tiff_lzw", "jpeg", "tiff_adobe_deflate", "packbits")
        variants += [(noise, {"compression": name}) for name in names]
        variants += [(noise.convert("1"), {"compression": "group4"}), (noise.convert("I;16"), {})]
    elif kind == "JPEG":
        variants += [(noise, {"progressive": True}), (noise.convert("CMYK"), {})]
    elif kind == "PNG":
        variants += [(noise.convert(mode), {}) for mode in ("P", "I;16", "RGBA")]
    elif kind == "GIF":
        frames = [noise.rotate(90), noise.rotate(180)]
        variants += [(noise, {"save_all": True, "append_images": frames, "loop": 0})]
    elif kind == "WEBP":
        frames = [noise.rotate(180)]
        variants += [(noise, {"lossless": True}), (noise, {"save_all": True, "append_images": frames})]
    elif kind == "BMP":
        variants += [(noise.convert("P"), {}), (noise.convert("1"), {})]
    elif kind == "PPM":
        variants += [(noise.convert("1"), {}), (noise.convert("L"), {}), (noise.convert("F"), {})]
    found = []
    for one, options in variants:
        content = io.BytesIO()
        one.save(content, format=kind, **options)
        found.append(content.getvalue())
    return found


def strike(case: Path, other: bytes, dice: random.Random) -> None:
    content = case.read_bytes()
    for _ in range(dice.choice((1, 1, 2, 4))):
        content = dice.choice((flipped, truncated, set_number, set_number))(content, dice)
    case.write_bytes(content)


def set_number(content: bytes, dice: random.Random) -> bytes:
    """An extreme number somewhere, most often in the header, where sizes and offsets are."""
    place = dice.randrange(max(1, min(len(content), dice.choice((24, 64, len(content))))))
    width = dice.choice((1, 2, 4))
    number = dice.choice(NUMBERS) & ((1 << 8 * width) - 1)
    return content[:place] + number.to_bytes(width, dice.choice(("little", "big"))) + content[place + width :]


def splice(case: Path, other: bytes, dice: random.Random) -> None:
    """A part of another file, of the same format or of another one."""
    content = case.read_bytes()
    place, length = dice.randrange(len(content)), dice.choice((4, 40, 4000))
    case.write_bytes(content[:place] + other[place : place + length] + content[place + length :])


def swell(case: Path, other: bytes, dice: random.Random) -> None:
    write_sparse(case, dice.choice([2**21, 2**28, 2**35]))


def blow_up(case: Path, other: bytes, dice: random.Random) -> None:
    """Few bytes, many pixels: as many as are taken, or more."""
    kind = dice.choice(("PNG", "GIF", "BMP", "TIFF", "JPEG"))
    mode = dice.choice(("1", "L", "P", "RGB"))
    width, height = dice.choice(((1, 5000), (2000, 2000), (5000, 5000), (12_000, 12_000)))
    if kind == "BMP":
        width, height = width // 8 + 1, height // 8
    elif kind == "JPEG" and mode in ("1", "P"):
        mode = "L"
    options = {"compression": "tiff_adobe_deflate"} if kind == "TIFF" else {}
    Image.new(mode, (width, height)).save(case, format=kind, **options)


def disturb(case: Path, other: bytes, dice: random.Random) -> None:
    case.unlink()
    kind = dice.randrange(4)
    if kind == 0:
        case.mkdir()
    elif kind == 1:
        os.mkfifo(case)
    elif kind == 2:
        case.symlink_to(dice.choice(["/dev/zero", "nowhere", "/", "case.jpg"]))
    else:
        case.write_bytes(b"")


DAMAGES: tuple[Callable[[Path, bytes, random.Random], None], ...] = (
    *(strike,) * 60,
    *(splice,) * 15,
    swell,
    blow_up,
    disturb,
)
