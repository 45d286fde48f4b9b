"""A save is complete or leaves nothing behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from support.towers import FILES, Tower, portrait
from trainonce.errors import ArtifactError
from trainonce.storage.artifact import folder, save


def put_folder(path: Path) -> None:
    path.mkdir()


def put_file(path: Path) -> None:
    path.write_text("mine")


def put_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [put_folder, put_file, put_dangling_link])
def test_what_exists_is_not_overwritten(tmp_path: Path, put: Callable[[Path], None]):
    put(tmp_path / "small")
    with pytest.raises(ArtifactError, match="already exists"):
        save(Tower(), tmp_path / "small")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="Not a directory"):
        save(Tower(), tmp_path / "file" / "small")


def fail(error: BaseException) -> Callable[..., Any]:
    def failing(*_: Any, **__: Any) -> Any:
        raise error

    return failing


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (os, "mkdir", OSError(30, "Read-only file system")),
        (Path, "write_text", OSError(28, "No space left on device")),
        (folder, "save_file", SafetensorError("I/O error:\n No space left on device")),
        (Path, "write_bytes", OSError(28, "No space left on device")),
        (os, "fsync", OSError(5, "Input/output error")),
        (os, "rename", OSError(39, "Directory not empty")),
        (folder, "save_file", KeyboardInterrupt()),
        (os, "fsync", KeyboardInterrupt()),
    ],
)
def test_an_interrupted_save_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException
):
    tower = Tower()
    before = portrait(tower)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail(error))
        with pytest.raises(
            KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ArtifactError
        ) as caught:
            save(tower, tmp_path / "small")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert portrait(tower) == before
    save(tower, tmp_path / "small")
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == sorted(FILES)


def test_everything_is_on_disk_before_the_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flushed: set[int] = set()
    flush = os.fsync

    def note_and_flush(descriptor: int) -> None:
        assert not (tmp_path / "small").exists() or os.fstat(descriptor).st_ino == tmp_path.stat().st_ino
        flushed.add(os.fstat(descriptor).st_ino)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note_and_flush)
    save(Tower(), tmp_path / "small")
    assert flushed >= {
        path.stat().st_ino for path in (tmp_path, tmp_path / "small", *(tmp_path / "small").iterdir())
    }


def test_whoever_reads_the_plan_may_read_the_weights(saved: Path):
    assert len({(saved / name).stat().st_mode for name in FILES}) == 1


def test_a_model_without_values_or_with_hidden_state_is_not_saved(tmp_path: Path):
    class Secretive(nn.Linear):
        def get_extra_state(self) -> object:
            return "secret"

    unusual = nn.ParameterList([torch.zeros(2, dtype=torch.complex128)])
    for model, names in (
        (Tower().to("meta"), "meta device"),
        (nn.Sequential(Secretive(2, 2)), "extra_state"),
        (unusual, "safetensors"),
    ):
        with pytest.raises(ArtifactError, match=names) as caught:
            save(model, tmp_path / "small")
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
