"""Folders of images: how they are split, and what happens to images that can't be read."""

import logging
from pathlib import Path

import pytest
import torch

from support.image_folders import one_batch, write_classes, write_image
from trainonce.data.catalogue import (
    DataOptions,
    describe_data,
    open_data,
)
from trainonce.errors import DataError


@pytest.mark.parametrize("second", ["val", "test", "valid"])
@pytest.mark.parametrize("size", [16, 72])
def test_a_folder_with_two_parts(tmp_path: Path, second: str, size: int):
    write_classes(tmp_path / "train", num_images=4, size=80)
    write_classes(tmp_path / second, num_images=2, size=80)
    data = open_data(f"folder:{tmp_path}", DataOptions(image_size=size, augment="none"))
    assert (len(data.train), len(data.validation), data.classes) == (8, 4, ("cat", "dog"))
    images, labels = one_batch(data.train, torch.arange(8))
    assert images.shape == (8, 3, size, size)
    assert labels.tolist() == [0] * 4 + [1] * 4
    assert (images[4:].mean(dim=(1, 2, 3)) > images[:4].mean(dim=(1, 2, 3)).max()).all()


def test_one_folder_is_split_by_name_and_seed_class_by_class(tmp_path: Path):
    write_classes(tmp_path, num_images=10)
    options = DataOptions(image_size=8, augment="none", seed=3)
    data = open_data(f"folder:{tmp_path}", options)
    assert len(data.train) + len(data.validation) == 20
    for part in (data.train, data.validation):
        assert set(one_batch(part, torch.arange(len(part)))[1].tolist()) == {0, 1}
    again = open_data(f"folder:{tmp_path}", options)
    assert torch.equal(again.train.images_NCHW, data.train.images_NCHW)
    shades = [set(part.images_NCHW[:, 0, 0, 0].tolist()) for part in (data.train, data.validation)]
    assert shades[0].isdisjoint(shades[1])
    assert len(shades[0] | shades[1]) == 20


def test_reading_processes_change_nothing(tmp_path: Path):
    write_classes(tmp_path / "train", num_images=6, size=90)
    write_classes(tmp_path / "val", num_images=2, size=90)
    draws = [(torch.arange(0, 6), 1), (torch.arange(6, 12), 2)]
    found = []
    for num_workers in (0, 2):
        data = open_data(f"folder:{tmp_path}", DataOptions(image_size=72, num_workers=num_workers))
        found.append(torch.cat([images for images, _ in data.train.batches(draws)]))
    assert torch.equal(*found)


@pytest.mark.parametrize("content", [b"", b"no image at all", "truncated"])
@pytest.mark.parametrize("size", [16, 72])
def test_a_broken_image_is_named_and_left_out(
    tmp_path: Path, content, size: int, caplog: pytest.LogCaptureFixture
):
    write_classes(tmp_path / "train", num_images=4, size=80)
    write_classes(tmp_path / "val", num_images=4, size=80)
    for part in ("train", "val"):
        broken = tmp_path / part / "cat" / "1.png"
        broken.write_bytes(broken.read_bytes()[:60] if content == "truncated" else content)
    with caplog.at_level(logging.WARNING, "trainonce"):
        data = open_data(f"folder:{tmp_path}", DataOptions(image_size=size))
        train = one_batch(data.train, torch.arange(len(data.train)))[0]
        validation = one_batch(data.validation, torch.arange(len(data.validation)))[0]
    assert len(train) == len(data.train)
    assert len(validation) == 7
    assert sum("1.png" in record.getMessage() for record in caplog.records) == 2


@pytest.mark.parametrize("size", [16, 72])
def test_too_many_broken_images_stop_the_run(tmp_path: Path, size: int):
    write_classes(tmp_path / "train", num_images=6, size=80)
    write_classes(tmp_path / "val", num_images=2, size=80)
    for image in range(3):
        (tmp_path / "train" / "cat" / f"{image}.png").write_bytes(b"")
    with pytest.raises(DataError, match="3 images can't be read, and the limit is 2"):
        one_batch(
            open_data(f"folder:{tmp_path}", DataOptions(image_size=size, max_bad_images=2)).train,
            torch.arange(9),
        )


def test_a_class_of_which_nothing_can_be_read_stops_the_run(tmp_path: Path):
    write_classes(tmp_path / "train", num_images=3, size=40)
    write_classes(tmp_path / "val", num_images=3, size=40)
    for path in (tmp_path / "train" / "cat").iterdir():
        path.write_bytes(b"")
    with pytest.raises(
        DataError,
        match=(
            r"^none of the training images of class 'cat' can be read, such as [^\n]*\.png [^\n]*Replace them"
        ),
    ):
        open_data(f"folder:{tmp_path}", DataOptions(image_size=16))


@pytest.mark.parametrize("size", [None, 24])
def test_what_is_known_without_reading_is_what_is_read(tmp_path: Path, size: int | None):
    for part in ("train", "val"):
        write_classes(tmp_path / part, num_images=2, size=40)
    for source in ("digits", f"folder:{tmp_path}", "imagenet"):
        options = DataOptions(image_size=size, data_dir=tmp_path)
        data, shape = open_data(source, options), describe_data(source, options)
        assert (shape.num_classes, shape.image_size) == (data.num_classes, data.image_size)


def test_an_empty_class_is_named(tmp_path: Path):
    write_classes(tmp_path / "train", num_images=2)
    write_classes(tmp_path / "val", num_images=2)
    (tmp_path / "train" / "eel").mkdir()
    with pytest.raises(DataError, match="class 'eel'"):
        open_data(f"folder:{tmp_path}")


def test_a_class_that_only_validation_knows_is_named(tmp_path: Path):
    write_classes(tmp_path / "train", num_images=2)
    write_classes(tmp_path / "val", num_images=2)
    write_image(tmp_path / "val" / "eel" / "1.png", 3)
    with pytest.raises(DataError, match="class 'eel'"):
        open_data(f"folder:{tmp_path}")


def test_a_folder_without_validation_or_classes_is_refused(tmp_path: Path):
    write_classes(tmp_path / "train", num_images=2)
    with pytest.raises(DataError, match="no validation data"):
        open_data(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="at least 2 are needed"):
        open_data(f"folder:{tmp_path / 'train' / 'cat'}")
