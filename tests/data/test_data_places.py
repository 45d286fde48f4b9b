"""Laws of where data is: what was meant is suggested; a missing or closed home is told in one line."""

import os
from pathlib import Path

import pytest

from support.file_systems import needs_unicode_names
from support.photos import write_photos
from trainonce.cli import main
from trainonce.data import cifar
from trainonce.data.catalogue import DataOptions, check_source, describe_data, open_data
from trainonce.data.file_names import shown, spelled
from trainonce.errors import DataError
from trainonce.storage.atomic import write_file


def refusal(source: str, options: DataOptions | None = None) -> str:
    with pytest.raises(DataError) as error:
        open_data(source, options or DataOptions())
    assert str(error.value).isprintable()
    return str(error.value)


@pytest.mark.parametrize("written", ["photos", "photos/", "./photos", "{}", "~/photos"])
def test_a_folder_without_its_prefix_is_suggested_with_it(
    tmp_path: Path,
    written: str,
    monkeypatch: pytest.MonkeyPatch,
):
    write_photos(tmp_path / "photos", num_images=2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    source = written.format(tmp_path / "photos")
    message = refusal(source)
    assert message.endswith(f"Did you mean folder:{source}?")
    open_data(message.rpartition("Did you mean ")[2].removesuffix("?"))


def test_the_command_suggests_the_prefix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    write_photos(tmp_path / "photos", num_images=2)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--model", "cifar:resnet20", "--data", "photos/", "--keep-flops", "0.5"]) == 2
    err = capsys.readouterr().err
    assert "folder:photos/" in err
    assert err.count("\n") == 1


def test_what_is_no_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos.zip").touch()
    assert "is a file" in refusal("photos.zip")
    assert "folder:PATH" in refusal("no/such/place")
    assert "Did you mean digits" in refusal("digit")
    for source in ("folder:photos.zip", "folder:gone", f"folder:{'x' * 5000}", "folder:a\0b", "a\0b"):
        refusal(source)


@pytest.mark.parametrize("source", ["cifar10", "folder:~/photos", "folder:~nobody-here/photos", "imagenet"])
def test_a_missing_home_is_told_in_one_line(source: str, monkeypatch: pytest.MonkeyPatch):
    def homeless(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    options = DataOptions(data_dir=Path("~/data"), download=False) if source == "imagenet" else DataOptions()
    assert "home folder" in refusal(source, options)


def test_a_home_that_takes_nothing_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Absent:
        def __init__(self, root: Path, *, train: bool, download: bool) -> None:
            assert not download, "it was downloaded to nowhere"
            raise RuntimeError("Dataset not found")

    # A file where a folder would have to be made: refused to every user, root included.
    (tmp_path / ".cache").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cifar.datasets, "CIFAR10", Absent)
    message = refusal("cifar10")
    assert "can't be downloaded" in message
    assert "--data-dir" in message


def test_files_that_may_not_be_read_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def closed(root: Path, *, train: bool, download: bool) -> None:
        raise PermissionError(13, "Permission denied", str(root / "data_batch_1"))

    monkeypatch.setattr(cifar.datasets, "CIFAR10", closed)
    assert "can't read cifar10" in refusal("cifar10", DataOptions(data_dir=tmp_path))


def test_a_folder_that_may_not_be_read_is_told_in_one_line(tmp_path: Path):
    if not os.geteuid():
        pytest.skip("root may read everything")
    folder = write_photos(tmp_path / "photos", num_images=2)
    (folder / "cat").chmod(0)
    try:
        assert "can't read" in refusal(f"folder:{folder}")
    finally:
        (folder / "cat").chmod(0o700)


def test_data_dir_says_where_a_folder_is_now(tmp_path: Path):
    folder = write_photos(tmp_path / "photos", num_images=4)
    options = DataOptions(data_dir=folder)
    check_source("folder:gone", options)
    assert describe_data("folder:gone", options).num_classes == 4
    assert len(open_data("folder:gone", options).train) == len(open_data(f"folder:{folder}").train)
    assert "gone" in refusal("folder:photos", DataOptions(data_dir=tmp_path / "gone"))


@pytest.mark.parametrize(
    "name",
    ["a\nb", "\x1b[2J", "\u202eexe", "\udcff", "x\0", "tab\t", "\u2028", "\ue000", "\u200b"],
)
def test_a_name_is_shown_in_one_line_and_can_be_written_anywhere(name: str):
    found = shown(name)
    assert found.isprintable()
    assert found.isascii()
    found.encode()


@pytest.mark.parametrize("name", ["photo [v2].jpg", "caf\u00e9/1.jpg", "\u732b/1.jpg", "a b'c\"d"])
def test_a_name_without_harm_is_shown_as_it_is(name: str):
    assert shown(name) == name
    assert spelled(name) == name


def test_a_long_name_keeps_both_ends():
    found = shown("a" * 300 + "z" * 300)
    assert len(found) <= 163
    assert found.startswith("aaa")
    assert found.endswith("zzz")


@needs_unicode_names
def test_a_text_with_a_name_that_is_no_utf8_is_written_all_the_same(tmp_path: Path):
    write_file(tmp_path / "page", f"photos {os.fsdecode(bytes([255]))} [v2]\n")
    assert (tmp_path / "page").read_text(encoding="utf-8") == "photos \\udcff [v2]\n"
