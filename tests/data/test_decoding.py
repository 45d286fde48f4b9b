"""Laws of decoding: a file gives an image, or one line that says why not; no other program is started."""

import logging
import os
import struct
import warnings
import zlib
from pathlib import Path

import pytest
import torch
from PIL import EpsImagePlugin, Image, ImageFile

from support.photos import write_photos
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.data.decoding import ENDINGS, FORMATS, decode, read_shorter_side
from trainonce.errors import DataError

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%Page: 1 1\nshowpage\n%%EOF\n"


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A grey PNG that says it has this size, whatever its rows are."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        length, checksum = struct.pack(">I", len(content)), struct.pack(">I", zlib.crc32(kind + content))
        return length + kind + content + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def refusal(path: Path) -> str:
    with pytest.raises(OSError, match=r".") as error:
        decode(path)
    assert type(error.value) is OSError
    message = str(error.value)
    assert message.isprintable()
    assert 0 < len(message) <= 200
    return message


@pytest.mark.parametrize("ending", sorted(ENDINGS))
def test_every_accepted_ending_is_decoded(tmp_path: Path, ending: str):
    path = tmp_path / f"x{ending.upper()}"
    Image.fromarray(noise(9, 7, 3).numpy()).convert("L" if ending == ".pgm" else "RGB").save(path)
    assert decode(path).shape == (3, 9, 7)
    assert decode(path).dtype == torch.uint8
    assert read_shorter_side(path) == 7


def test_the_ending_may_be_that_of_another_accepted_format(tmp_path: Path):
    image = Image.fromarray(noise(9, 7, 3).numpy())
    image.save(tmp_path / "x.png")
    os.rename(tmp_path / "x.png", tmp_path / "x.jpg")
    assert torch.equal(decode(tmp_path / "x.jpg").permute(1, 2, 0), noise(9, 7, 3))


@pytest.mark.parametrize("kind", ["PCX", "ICO", "TGA", "SGI", "AVIF", "JPEG2000", "DDS", "PDF", "EPS"])
def test_other_formats_are_refused_whatever_they_are_called(tmp_path: Path, kind: str):
    try:
        Image.fromarray(noise(32, 32, 3).numpy()).save(tmp_path / "x.jpg", format=kind)
    except (KeyError, OSError):
        pytest.skip(f"this Pillow writes no {kind}")
    assert "known format" in refusal(tmp_path / "x.jpg")


def test_a_page_of_postscript_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", start)
    (tmp_path / "photo.jpg").write_bytes(EPS)
    assert "known format" in refusal(tmp_path / "photo.jpg")


@pytest.mark.parametrize(
    "error",
    [
        struct.error("short"),
        IndexError("no\nsuch"),
        OverflowError(),
        MemoryError(),
        KeyError(3),
        AttributeError("x"),
        ZeroDivisionError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("moment", ["open", "load"])
def test_whatever_a_decoder_raises_is_a_broken_image(
    tmp_path: Path,
    error: Exception,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
):
    def fail(*_: object, **__: object) -> None:
        raise error

    Image.fromarray(noise(9, 7, 3).numpy()).save(tmp_path / "x.png")
    if moment == "open":
        monkeypatch.setitem(Image.OPEN, "PNG", (fail, None))
    else:
        monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    refusal(tmp_path / "x.png")


@pytest.mark.parametrize(
    "size",
    [(20_000, 20_000), (6_000, 6_000), (4_000_000, 1), (1, 30_000), (2**31 - 1, 2**31 - 1)],
)
def test_a_picture_that_would_fill_the_memory_is_refused_before_it_is_decoded(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    # What another library may have set.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda *_: pytest.fail("it was decoded"))
    (tmp_path / "x.png").write_bytes(png(*size))
    assert "pixels" in refusal(tmp_path / "x.png") or size[0] == 2**31 - 1


def test_a_large_photo_is_no_bomb(tmp_path: Path):
    Image.fromarray(noise(600, 500, 3).numpy()).resize((5200, 5200)).save(tmp_path / "x.jpg", quality=60)
    assert decode(tmp_path / "x.jpg").shape == (3, 5200, 5200)


def test_pipes_folders_and_what_may_not_be_read_are_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    Image.fromarray(noise(9, 7, 3).numpy()).save(tmp_path / "secret.png")
    (tmp_path / "secret.png").chmod(0)
    assert refusal(tmp_path / "pipe.jpg") == "not a regular file"
    refusal(tmp_path / "folder.jpg")
    assert refusal(tmp_path / "gone.jpg") == "No such file or directory"
    if os.geteuid():
        assert refusal(tmp_path / "secret.png") == "Permission denied"


def test_of_several_frames_the_first_counts(tmp_path: Path):
    frames = [Image.fromarray(noise(8, 8, seed=seed).numpy()) for seed in range(3)]
    for ending in ("gif", "tiff"):
        frames[0].save(tmp_path / f"x.{ending}", save_all=True, append_images=frames[1:])
        assert torch.equal(decode(tmp_path / f"x.{ending}")[0], noise(8, 8))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_every_kind_of_colours_becomes_three(tmp_path: Path, mode: str):
    image = Image.fromarray(noise(8, 6, 3).numpy()).convert(mode)
    path = tmp_path / ("x.tiff" if mode in ("CMYK", "YCbCr") else "x.png")
    image.save(path)
    assert decode(path).shape == (3, 8, 6)


@pytest.mark.parametrize("ending", ["png", "tiff"])
def test_sixteen_bits_of_grey_keep_their_shades(tmp_path: Path, ending: str):
    shades = torch.arange(0, 65536, 256).view(16, 16)
    image = Image.new("I;16", (16, 16))
    image.frombytes(shades.to(torch.int32).numpy().astype("<u2").tobytes())
    image.save(tmp_path / f"x.{ending}")
    assert torch.equal(decode(tmp_path / f"x.{ending}"), (shades >> 8).to(torch.uint8).expand(3, 16, 16))


def test_decoding_says_nothing_beside_its_error(tmp_path: Path):
    image = Image.fromarray(noise(9, 7, 3).numpy())
    image.save(tmp_path / "x.tiff")
    content = (tmp_path / "x.tiff").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in range(0, len(content), 7):
            (tmp_path / "y.tiff").write_bytes(content[:length])
            refusal(tmp_path / "y.tiff")


def read_all(folder: Path, size: int, **options: int) -> torch.Tensor:
    data = open_data(f"folder:{folder}", DataOptions(image_size=size, **options))
    images, _ = next(iter(data.train.batches([(torch.arange(len(data.train)), 0)])))
    assert len(images) == len(data.train)
    return images


@pytest.mark.parametrize("size", [16, 72])
def test_what_strangers_leave_in_a_folder_is_named_and_skipped(
    tmp_path: Path,
    size: int,
    caplog: pytest.LogCaptureFixture,
):
    write_photos(tmp_path / "train", num_images=6, size=80)
    write_photos(tmp_path / "val", num_images=2, size=80)
    whole = (tmp_path / "train" / "ant" / "ant0.png").read_bytes()
    strange = {
        "photo.jpg": EPS,
        "avif.jpg": b"\0\0\0\x1cftypavif" + whole[:40],
        "tiff.tif": b"II*\0\x08\0\0\0\xff\xff" + b"\0" * 30,
        "strip.png": png(1, 30_000, b"\0\0" * 30_000),
        "bomb.png": png(30_000, 30_000),
        "new\nline.png": whole[:60],
    }
    for name, content in strange.items():
        (tmp_path / "train" / "ant" / name).write_bytes(content)
    os.mkfifo(tmp_path / "train" / "ant" / "pipe.jpg")
    with caplog.at_level(logging.WARNING, "trainonce"):
        assert len(read_all(tmp_path, size)) >= 24
    lines = [record.getMessage() for record in caplog.records]
    assert sum("skipped a broken image" in line for line in lines) == len(strange)
    assert all(line.isprintable() for line in lines)
    for name in strange:
        assert any(name.replace("\n", "\\n") in line for line in lines)
    with pytest.raises(DataError, match="images can't be read, and the limit is 2"):
        read_all(tmp_path, size, max_bad_images=2)


def test_formats_are_those_of_the_endings():
    Image.init()
    assert {Image.EXTENSION[ending] for ending in ENDINGS} == set(FORMATS)


def test_images_are_opened_by_pillow_whoever_has_replaced_its_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def install_packages(*_: object, **__: object) -> None:
        raise AssertionError("Ultralytics' function installs a package for formats that it doesn't know")

    monkeypatch.setattr(Image, "open", install_packages)
    Image.fromarray(noise(9, 7, 3).numpy()).save(tmp_path / "x.png")
    assert decode(tmp_path / "x.png").shape == (3, 9, 7)
    (tmp_path / "y.png").write_bytes(b"something else")
    assert "not an image of a known format" in refusal(tmp_path / "y.png")
