"""`evaluate` knows the data that the run was made with."""

import json
import shutil
from pathlib import Path

import pytest

from support.photo_runs import opened, rename_class
from support.photos import write_photo
from trainonce.cli import main


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["evaluate", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def validation_image(folder: Path) -> str:
    return next(iter(opened(folder).validation.describe_identity()["files"]["cat"]))


def test_evaluate_refuses_validation_data_that_has_changed_unless_it_is_named(
    kept: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    before = evaluated(capsys, str(kept / "run"))
    write_photo(kept / "photos" / "cat" / validation_image(kept / "photos"), content="another cat")
    for command in ("evaluate", "export", "bench"):
        assert main([command, str(kept / "run")]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "1 image was changed, such as cat/" in err
        assert "--data-dir" in err
    after = evaluated(capsys, str(kept / "run"), "--data-dir", str(kept / "photos"))
    assert after["loss"] != before["loss"]
    assert sum("1 image was changed" in record.getMessage() for record in caplog.records) == 1


def test_evaluate_refuses_other_classes_even_if_they_are_named(
    kept: Path,
    capsys: pytest.CaptureFixture[str],
):
    rename_class(kept / "photos")
    for words in ([], ["--data-dir", str(kept / "photos")]):
        assert main(["evaluate", str(kept / "run"), *words]) == 2
        assert "class 'dog' is now 'hund'" in capsys.readouterr().err


def test_evaluate_does_not_mind_the_training_data_and_normalizes_as_in_training(
    kept: Path,
    capsys: pytest.CaptureFixture[str],
):
    before = evaluated(capsys, str(kept / "run"))
    trained_on = opened(kept / "photos").train.describe_identity()["files"]["cat"]
    for name in trained_on:
        shutil.copy(kept / "photos" / "dog" / "dog0.png", kept / "photos" / "cat" / name)
    assert evaluated(capsys, str(kept / "run")) == before


def test_a_folder_that_was_moved_is_named_with_data_dir(
    kept: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    before = evaluated(capsys, str(kept / "run"))
    shutil.copytree(kept / "photos", tmp_path / "moved")
    (kept / "photos").rename(kept / "away")
    try:
        assert main(["evaluate", str(kept / "run")]) == 2
        assert "--data-dir" in capsys.readouterr().err
        assert evaluated(capsys, str(kept / "run"), "--data-dir", str(tmp_path / "moved")) == before
    finally:
        (kept / "away").rename(kept / "photos")
