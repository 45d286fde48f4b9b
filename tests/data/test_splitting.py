"""Laws of the split: a file's part depends on its name and the seed, on nothing that lies beside it."""

import os
import shutil
import unicodedata
from pathlib import Path

import pytest

from support.file_systems import needs_unicode_names
from support.photos import write_photo, write_photos
from trainonce.data import listing
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.data.listing import Listing, Listings, list_images
from trainonce.errors import DataError


def parts_of(found: Listings) -> dict[str, str]:
    """From a file's name to its part."""
    return dict.fromkeys(found.train.names, "train") | dict.fromkeys(found.validation.names, "val")


def touch(folder: Path, names: list[str]) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}/{number}.jpg" for number in range(count)]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_an_added_or_removed_file_moves_no_other(tmp_path: Path, seed: int):
    touch(tmp_path, [*numbered("cat", 60), *numbered("dog", 60)])
    before = parts_of(list_images(tmp_path, seed=seed))
    touch(tmp_path, [f"cat/{name}" for name in ("a.jpg", "0a.jpg", "zz/1.jpg", "5a.png")])
    (tmp_path / "dog" / "7.jpg").unlink()
    after = parts_of(list_images(tmp_path, seed=seed))
    assert len(after) == 123
    assert {name: part for name, part in after.items() if name in before} == {
        name: part for name, part in before.items() if name != "dog/7.jpg"
    }


def test_a_new_class_and_a_new_name_of_a_class_move_no_file(tmp_path: Path):
    touch(tmp_path, [*numbered("cat", 40), *numbered("dog", 40)])
    before = parts_of(list_images(tmp_path, seed=0))
    touch(tmp_path, numbered("ant", 9))
    (tmp_path / "dog").rename(tmp_path / "hund")
    after = parts_of(list_images(tmp_path, seed=0))
    old = {name.replace("hund/", "dog/"): part for name, part in after.items() if not name.startswith("ant")}
    assert old == before


def test_about_a_fifth_of_each_class_validates_and_seeds_choose_others(tmp_path: Path):
    touch(tmp_path, [*numbered("cat", 1000), *[f"dog/{number}-{number}.jpg" for number in range(1000)]])
    found = [parts_of(list_images(tmp_path, seed=seed)) for seed in (0, 1)]
    for parts in found:
        for name in ("cat", "dog"):
            assert 150 < sum(part == "val" for file, part in parts.items() if file.startswith(name)) < 250
    # Two independent fifths differ in 0.32 of the files.
    assert 0.25 < sum(found[0][name] != found[1][name] for name in found[0]) / 2000 < 0.4


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_smallest_class_has_an_image_on_both_sides(tmp_path: Path, count: int):
    touch(tmp_path, [*numbered("cat", count), *numbered("dog", 30)])
    for seed in range(60):
        parts = parts_of(list_images(tmp_path, seed=seed))
        assert {part for name, part in parts.items() if name.startswith("cat/")} == {"train", "val"}


def test_all_images_of_a_small_class_may_be_drawn_to_validate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    touch(tmp_path, [*numbered("cat", 3), *numbered("dog", 3)])
    monkeypatch.setattr(listing, "VALIDATION_SHARE", 1.0)
    found = list_images(tmp_path, seed=0)
    assert (len(found.train), len(found.validation)) == (2, 4)


def test_a_class_with_one_image_is_refused(tmp_path: Path):
    touch(tmp_path, [*numbered("cat", 1), *numbered("dog", 30)])
    with pytest.raises(DataError, match=r"class 'cat' .* has one image"):
        list_images(tmp_path, seed=0)


def test_the_split_is_the_same_wherever_the_folder_is_and_in_any_order_of_the_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    names = [*numbered("cat", 30), *numbered("dog/deep", 30), "dog/\u00e9t\u00e9.jpg"]
    one, other = touch(tmp_path / "one", names), touch(tmp_path / "two" / "other", names[::-1])
    found = list_images(one, seed=3)
    scandir = os.scandir

    class Backwards:
        def __init__(self, place: Path) -> None:
            with scandir(place) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(listing.os, "scandir", Backwards)
    again = list_images(other, seed=3)
    for mine, theirs in ((found.train, again.train), (found.validation, again.validation)):
        assert mine.names == theirs.names
        assert mine.labels == theirs.labels


@needs_unicode_names
def test_the_split_is_the_same_in_both_forms_of_unicode(tmp_path: Path):
    names = [f"\u00e9t\u00e9/caf\u00e9{number}.jpg" for number in range(40)] + numbered("zoo", 5)
    composed = list_images(touch(tmp_path / "linux", names), seed=0)
    apart = [unicodedata.normalize("NFD", name) for name in names]
    decomposed = list_images(touch(tmp_path / "mac", apart), seed=0)
    assert composed.classes == decomposed.classes
    wanted = {unicodedata.normalize("NFD", name): part for name, part in parts_of(composed).items()}
    assert parts_of(decomposed) == wanted


@needs_unicode_names
def test_two_folders_that_spell_one_class_are_refused(tmp_path: Path):
    touch(tmp_path, ["\u00e9/1.jpg", "e\u0301/1.jpg", "zoo/1.jpg"])
    with pytest.raises(DataError, match="two Unicode forms"):
        list_images(tmp_path, seed=0)


def test_names_that_are_no_utf8_are_listed_and_split(tmp_path: Path):
    odd = os.fsdecode(b"\xff\xfe")
    try:
        touch(tmp_path, [f"cat/{odd}{number}.jpg" for number in range(9)] + numbered(odd, 9))
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    found = list_images(tmp_path, seed=0)
    assert len(found.train) + len(found.validation) == 18
    for part in (found.train, found.validation):
        assert all(part.path(number).is_file() for number in range(len(part)))


def test_links_are_followed_once_and_what_is_no_file_is_left_out(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    folder = touch(tmp_path / "photos", [*numbered("cat", 3), *numbered("dog", 3), "cat/deep/er/9.jpg"])
    elsewhere = touch(tmp_path / "elsewhere", ["1.jpg", "2.txt"])
    (folder / "cat" / "linked").symlink_to(elsewhere)
    (folder / "cat" / "deep" / "back").symlink_to(folder / "cat")
    (folder / "cat" / "deep" / "er" / "up").symlink_to(folder / "cat" / "deep")
    (folder / "dog" / "linked.jpg").symlink_to(elsewhere / "1.jpg")
    (folder / "dog" / "nowhere.jpg").symlink_to(tmp_path / "gone.jpg")
    os.mkfifo(folder / "dog" / "pipe.jpg")
    touch(folder, [".hidden/1.jpg", "cat/._0.jpg", "cat/.thumbnails/0.jpg", "cat/notes.txt"])
    names = {
        *numbered("cat", 3),
        *numbered("dog", 3),
        "cat/deep/er/9.jpg",
        "cat/linked/1.jpg",
        "dog/linked.jpg",
    }
    assert set(parts_of(list_images(folder, seed=0))) == names
    (line,) = [record.getMessage() for record in caplog.records]
    assert "skipped 2 entries" in line
    assert "dog/" in line


def test_images_in_no_class_and_classes_alike_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    touch(tmp_path, [*numbered("cat", 3), *numbered("dog", 3), "1.jpg", "2.jpg", "readme.txt"])
    try:
        touch(tmp_path, numbered("Cat", 3))
    except OSError:
        pytest.skip("this file system knows no upper case")
    assert list_images(tmp_path, seed=0).classes == ("Cat", "cat", "dog")
    alike, loose = [record.getMessage() for record in caplog.records]
    assert "'Cat' and 'cat'" in alike
    assert "2 images" in loose
    assert "1.jpg" in loose


@pytest.mark.parametrize("names", [("Train", "Val"), ("training", "validation"), ("val", "test")])
def test_parts_with_other_names_are_not_taken_for_classes(tmp_path: Path, names: tuple[str, str]):
    for name in names:
        touch(tmp_path, [f"{name}/cat/1.jpg", f"{name}/dog/1.jpg"])
    with pytest.raises(DataError, match="Rename them to train and val"):
        list_images(tmp_path, seed=0)


def test_a_class_in_other_case_in_the_validation_part_is_suggested(tmp_path: Path):
    touch(tmp_path, ["train/Cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/dog/2.jpg"])
    if (tmp_path / "train" / "cat").exists():
        pytest.skip("this file system knows no upper case")
    with pytest.raises(DataError, match="Did you mean Cat"):
        list_images(tmp_path, seed=0)


@needs_unicode_names
def test_names_in_messages_are_one_line_without_control_characters(tmp_path: Path):
    odd = "a\nb\x1b[31m\u202e"
    touch(tmp_path, [f"{odd}/readme.txt", "cat/1.jpg"])
    with pytest.raises(DataError) as error:
        list_images(tmp_path, seed=0)
    assert "\\n" in str(error.value)
    assert str(error.value).isprintable()


def test_a_hundred_thousand_files_are_listed_without_opening_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """The walk asks the disk for folders, not for files: a hundred thousand names cost a second."""
    touch(tmp_path, [*numbered("cat", 400), *numbered("dog", 400)])
    asked: list[object] = []
    stat = os.stat
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path, **options: asked.append(path) or stat(path, **options))
        found = list_images(tmp_path, seed=0)
    assert isinstance(found.train, Listing)
    assert len(found.train) + len(found.validation) == 800
    assert len(asked) < 10


def test_one_more_image_makes_no_training_image_validate(tmp_path: Path):
    """What a user sees: pixels that a run trained on are never among those that a later run validates on."""
    folder = write_photos(tmp_path / "photos", num_images=15)
    before = open_data(f"folder:{folder}", DataOptions(augment="none"))
    write_photo(folder / "ant" / "0.png")
    shutil.copy(folder / "bee" / "bee3.png", folder / "bee" / "00.png")
    after = open_data(f"folder:{folder}", DataOptions(augment="none"))

    def pixels(images) -> set[bytes]:
        return {image.numpy().tobytes() for image in images}

    copied = pixels(before.train.images_NCHW) | pixels(before.validation.images_NCHW)
    old, new = pixels(before.train.images_NCHW), pixels(after.validation.images_NCHW)
    assert len(old & new) <= 1, "at most the image that was copied under another name"
    assert len(copied) == 60
