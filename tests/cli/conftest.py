"""What tests of this folder share."""

import shutil
from pathlib import Path

import pytest

from support.commands import FLAGS
from trainonce.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "demo"
    assert main(["train", "digits.resnet20", *FLAGS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copied"))
