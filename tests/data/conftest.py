"""What tests of this folder share."""

import shutil
from pathlib import Path

import pytest

from support.photo_runs import WORDS, opened, start
from support.photos import write_photos
from trainonce.cli import main


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a run on them that was interrupted."""
    place = tmp_path_factory.mktemp("begun")
    start(opened(write_photos(place / "photos")), place / "run")
    return place


@pytest.fixture
def place(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "moved"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    write_photos(place / "photos", num_images=8)
    assert main(["train", *WORDS, "--data", f"folder:{place / 'photos'}", "--out", str(place / "run")]) == 0
    return place


@pytest.fixture
def kept(trained: Path):
    """The place of the run; its photos are put back."""
    shutil.copytree(trained / "photos", trained / "before")
    yield trained
    shutil.rmtree(trained / "photos")
    (trained / "before").rename(trained / "photos")
