"""Laws of a run's data: what has changed since it began is noticed and named; data that only moved is not."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.file_systems import needs_unicode_names
from support.photo_runs import SETTINGS, opened, rename_class, replace_contents, resume, start
from support.photos import write_photo, write_photos
from support.runs import make_net, same_weights
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.data.identity.comparing import difference
from trainonce.data.identity.describing import describe
from trainonce.data.identity.keeping import read_identity
from trainonce.errors import DataChangedError
from trainonce.training import fit


def add(folder: Path) -> None:
    for number in range(3):
        write_photo(folder / "cat" / f"new{number}.png")


def remove(folder: Path) -> None:
    (folder / "dog" / "dog3.png").unlink()


def add_class(folder: Path) -> None:
    write_photos(folder, classes=("eel",), num_images=5)


def remove_class(folder: Path) -> None:
    shutil.rmtree(folder / "bee")


def swap_contents(folder: Path) -> None:
    one, other = folder / "ant" / "ant1.png", folder / "cat" / "cat1.png"
    mine, theirs = one.read_bytes(), other.read_bytes()
    one.write_bytes(theirs)
    other.write_bytes(mine)


def relabel(folder: Path) -> None:
    (folder / "ant" / "ant2.png").rename(folder / "bee" / "ant2.png")


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (add, r"3 images were added, such as cat/new\d\.png"),
    (remove, r"1 image was removed, such as dog/dog3\.png"),
    (rename_class, "class 'dog' is now 'hund'"),
    (add_class, "class 'eel' is new"),
    (remove_class, "class 'bee' is missing"),
    (replace_contents, r"1 image was changed, such as ant/ant5\.png"),
    (swap_contents, "2 images were changed"),
    (relabel, r"1 image was added, such as bee/ant2\.png; 1 image was removed, such as ant/ant2\.png"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_run_does_not_go_on_with_other_images(place: Path, change: Callable[[Path], None], words: str):
    change(place / "photos")
    kept = (place / "run" / "data.json").read_bytes()
    with pytest.raises(DataChangedError, match=words) as error:
        resume(opened(place / "photos"), place / "run")
    assert str(error.value).isprintable()
    assert str(error.value).endswith("Restore the run's data, or start a new run.")
    assert (place / "run" / "data.json").read_bytes() == kept


def test_a_run_goes_on_with_the_same_images_in_another_place_to_the_same_bits(place: Path):
    whole = fit(make_net(), opened(place / "photos"), settings=SETTINGS)
    assert same_weights(resume(opened(place / "photos"), place / "run").model, whole.model)


def test_what_is_no_image_may_come_and_go(place: Path):
    (place / "photos" / "cat" / "notes.txt").write_text("a cat")
    (place / "photos" / ".DS_Store").write_text("a Mac was here")
    assert len(resume(opened(place / "photos"), place / "run").history) == SETTINGS.epochs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"augment": "none"}, "augment is none, standard before"),
        ({"seed": 5}, r"images were moved from training to validation"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings_of_the_data(place: Path, options: dict, words: str):
    with pytest.raises(DataChangedError, match=words):
        resume(opened(place / "photos", **options), place / "run")
    with pytest.raises(DataChangedError, match="image_size is 10, 8 before"):
        resume(open_data(f"folder:{place / 'photos'}", DataOptions(image_size=10)), place / "run")


def test_a_run_without_a_record_of_its_data_goes_on_with_a_warning(
    place: Path,
    caplog: pytest.LogCaptureFixture,
):
    (place / "run" / "data.json").unlink()
    resume(opened(place / "photos"), place / "run")
    assert sum("data.json is missing" in record.getMessage() for record in caplog.records) == 1
    assert (place / "run" / "data.json").is_file()


DAMAGES = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"version": 2}',
    b'{"version": 1, "training": 3, "validation": []}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_record_is_told_in_one_line(place: Path, content: bytes):
    (place / "run" / "data.json").write_bytes(content)
    with pytest.raises(DataChangedError, match=r"data\.json can't be read") as error:
        resume(opened(place / "photos"), place / "run")
    assert str(error.value).isprintable()


def test_a_record_of_wrong_values_never_gives_a_traceback(place: Path):
    whole = json.loads((place / "run" / "data.json").read_text())
    now = describe(opened(place / "photos"))
    assert difference(whole, now) is None
    for forged in forgeries(whole):
        (place / "run" / "data.json").write_text(json.dumps(forged))
        with pytest.raises(DataChangedError):
            resume(opened(place / "photos"), place / "run")


def forgeries(whole: dict) -> list[dict]:
    """The record with one value replaced by something that has no business there."""
    found = []
    for name in ("classes", "settings", "training", "validation"):
        for value in (3, "x", [1], {"x": 1}, [None]):
            found.append(whole | {name: value})
    for name in ("kind", "count", "order", "files"):
        for value in (3, "x", [1], {"x": 1}, None, {"ant": {"ant0.png": 3}}, {"ant": 7}):
            found.append(whole | {"training": whole["training"] | {name: value}})
    return found


@pytest.mark.parametrize(
    "content", [b"[" + b"[]," * 2_000_000 + b"0]", b'["' + "\U0001f600".encode() + b'"]']
)
def test_a_record_that_would_fill_memory_is_refused_before_it_is_parsed(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was parsed"))
    (tmp_path / "data.json").write_bytes(content)
    with pytest.raises(DataChangedError, match="unexpected content"):
        read_identity(tmp_path)


@needs_unicode_names
def test_names_that_are_no_utf8_survive_the_record(tmp_path: Path):
    odd = os.fsdecode(b"\xff\xfe.png")
    folder = write_photos(tmp_path / "photos")
    try:
        write_photo(folder / "cat" / "x.png")
        os.rename(folder / "cat" / "x.png", folder / "cat" / odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    start(opened(folder), tmp_path / "run")
    (folder / "cat" / odd).unlink()
    with pytest.raises(DataChangedError, match=r"1 image was removed, such as cat/\\udcff\\udcfe\.png"):
        resume(opened(folder), tmp_path / "run")
