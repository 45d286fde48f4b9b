"""Laws of the size of images: nothing is enlarged without a word, and what is foretold is what is read."""

from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

from support.photos import write_photo, write_photos
from trainonce.cli import main
from trainonce.data import decoding
from trainonce.data.catalogue import DataOptions, describe_data, open_data
from trainonce.data.identity.describing import describe
from trainonce.data.sizing import own_size


def test_no_image_is_enlarged_and_little_is_lost():
    for side in range(1, 600):
        size = own_size(side)
        assert 4 <= size <= 224
        assert size <= max(side, 4)
        assert size > 0.66 * min(side, 224)
        assert size % (32 if side >= 64 else 8 if side >= 32 else 1) == 0


@pytest.mark.parametrize(
    ("side", "size"),
    [(8, 8), (28, 28), (32, 32), (64, 64), (100, 96), (224, 224), (500, 224)],
)
def test_images_are_used_at_their_own_size_and_photos_at_224(tmp_path: Path, side: int, size: int):
    folder = write_photos(tmp_path, num_images=3, size=side)
    data = open_data(f"folder:{folder}")
    assert data.image_size == size
    assert describe_data(f"folder:{folder}", DataOptions()).image_size == size
    images, _ = next(iter(data.train.batches([(torch.arange(2), 0)])))
    assert images.shape == (2, 3, size, size)
    line = data.summary[-1]
    assert str(size) in line
    assert str(side) in line
    assert "upscaled" not in line


def test_a_size_that_is_asked_for_is_obeyed_and_said(tmp_path: Path):
    folder = write_photos(tmp_path, num_images=3, size=64)
    data = open_data(f"folder:{folder}", DataOptions(image_size=224))
    assert data.image_size == 224
    assert "about 64 pixels" in data.summary[-1]
    assert "upscaled to 224" in data.summary[-1]
    assert "downscaled to 16" in open_data(f"folder:{folder}", DataOptions(image_size=16)).summary[-1]
    line = open_data("digits", DataOptions(image_size=16)).summary[-1]
    assert "8 pixels" in line
    assert "upscaled to 16" in line


@pytest.mark.parametrize("name", ["digits", "folder", "parts"])
def test_a_data_set_says_what_is_in_it(tmp_path: Path, name: str):
    if name == "folder":
        write_photos(tmp_path, num_images=9)
    elif name == "parts":
        write_photos(tmp_path / "train", num_images=9)
        write_photos(tmp_path / "test", num_images=3)
    data = open_data("digits" if name == "digits" else f"folder:{tmp_path}")
    text = "\n".join(data.summary)
    for word in (
        f"{len(data.train):,} training",
        f"{len(data.validation):,} validation images",
        f"{data.num_classes} classes",
    ):
        assert word in text
    assert {
        "digits": "the standard split of digits",
        "folder": "split by file name and seed 0",
        "parts": "test/ to validate on",
    }[name] in text
    assert all(line.isprintable() for line in data.summary)


def test_the_size_is_that_of_most_images_whatever_a_few_are(tmp_path: Path):
    folder = write_photos(tmp_path, num_images=12, size=48)
    for number in range(2):
        write_photo(folder / "cat" / f"large{number}.png", size=300)
        (folder / "dog" / f"broken{number}.png").write_bytes(b"no image")
    assert open_data(f"folder:{folder}").image_size == 48


def test_the_shorter_side_counts(tmp_path: Path):
    for name in ("cat", "dog"):
        for number in range(3):
            write_photo(tmp_path / name / f"{number}.png")
            Image.new("RGB", (300, 40)).save(tmp_path / name / f"{number}.png")
    assert open_data(f"folder:{tmp_path}").image_size == 40


def test_only_some_images_are_looked_at_before_the_data_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    classes = tuple(f"class{number}" for number in range(40))
    folder = write_photos(tmp_path, classes=classes, num_images=12, size=4)
    opened: list[object] = []
    real = decoding._identified
    monkeypatch.setattr(decoding, "_identified", lambda stream: opened.append(stream) or real(stream))
    assert describe_data(f"folder:{folder}", DataOptions()).num_classes == 40
    assert 0 < len(opened) <= 128


def test_a_run_keeps_the_size_that_it_has_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_photos(tmp_path / "photos", num_images=8, size=14)
    words = [
        "--model",
        "cifar:resnet20",
        "--data",
        f"folder:{folder}",
        "--keep-flops",
        "1",
        "--epochs",
        "1",
        "--batch-size",
        "16",
    ]
    assert main(["train", *words, "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["img_size"] == 14
    # The same images in twice the pixels are other data, and are still looked at in the size of the run.
    for path in sorted(folder.rglob("*.png")):
        Image.open(path).resize((28, 28)).save(path)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--data-dir", str(folder)]) == 0
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "images were changed" in capsys.readouterr().err


def test_imagenet_stays_at_224_and_says_so(tmp_path: Path):
    for part in ("train", "val"):
        write_photos(tmp_path / part, num_images=2, size=64)
    data = open_data("imagenet", DataOptions(data_dir=tmp_path))
    assert data.image_size == 224
    assert "upscaled to 224" in data.summary[-1]
    assert describe(data)["settings"]["image_size"] == 224
