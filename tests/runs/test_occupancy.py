"""One process at a time.

A lock lasts as long as its block and its process, whatever is opened, copied or forked meanwhile.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainonce.errors import FolderInUseError, LinkError
from trainonce.runs import occupancy
from trainonce.runs.occupancy import LOCK, occupied

TAKE = """
import sys
from pathlib import Path
from trainonce.errors import FolderInUseError
from trainonce.runs.occupancy import occupied
try:
    with occupied(Path(sys.argv[1])):
        print("taken")
except FolderInUseError as error:
    print(error)
"""


def run(script: str, folder: Path) -> str:
    """What another process says about the folder."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def test_the_lock_survives_other_handles_on_its_file(tmp_path: Path):
    folder = tmp_path / "run"
    with occupied(folder):
        with pytest.raises(FolderInUseError), occupied(folder):
            pass
        shutil.copytree(folder, tmp_path / "copy")
        (folder / LOCK).read_bytes()
        assert f"in use by process {os.getpid()}" in run(TAKE, folder)
    assert "taken" in run(TAKE, folder)


FORK_AND_DIE = """
import os, signal, sys, time
from pathlib import Path
from trainonce.runs.occupancy import occupied
with occupied(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        sys.stdout.close(), sys.stderr.close(), os.close(1), os.close(2)
        time.sleep(300)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_that_outlives_its_killed_parent_holds_nothing(tmp_path: Path):
    child = int(run(FORK_AND_DIE, tmp_path / "run").split()[0])
    try:
        os.kill(child, 0)
        with occupied(tmp_path / "run"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


FORK_AND_LEAVE = """
import os, sys
from pathlib import Path
from trainonce.errors import FolderInUseError
from trainonce.runs.occupancy import LOCK, occupied
folder = Path(sys.argv[1])
with occupied(folder):
    said = (folder / LOCK).read_text()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        assert (folder / LOCK).read_text() == said
        second = os.fork()
        if second == 0:
            try:
                with occupied(folder):
                    os._exit(1)
            except FolderInUseError:
                os._exit(0)
        assert os.waitpid(second, 0)[1] == 0
        print("still held")
"""


def test_a_child_that_leaves_the_block_takes_nothing_with_it(tmp_path: Path):
    assert run(FORK_AND_LEAVE, tmp_path / "run").split("\n").count("still held") == 1


WITHOUT_LOCKS = (
    """
import sys
sys.modules["fcntl"] = None
import logging
logging.basicConfig()
"""
    + TAKE
)


def test_where_there_are_no_locks_it_is_said_and_the_run_goes_on(tmp_path: Path):
    said = run(WITHOUT_LOCKS, tmp_path / "run")
    assert "taken" in said
    assert "can't be locked" in said
    assert "Traceback" not in said


TRAIN_WITHOUT_POSIX = """
import sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
import importlib, pkgutil
from pathlib import Path
import trainonce, trainonce.runs
for module in pkgutil.walk_packages(trainonce.runs.__path__, "trainonce.runs."):
    importlib.import_module(module.name)
import torch
from torch import nn
torch.manual_seed(0)
data = torch.randn(32, 8), torch.arange(32) % 4
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
settings = trainonce.Settings(keep_flops=0.5, epochs=2, batch_size=16)
trainonce.fit(net, (data, data), settings=settings, out=Path(sys.argv[1]), quiet=True)
print("trained")
"""


def test_a_run_trains_where_there_is_no_fcntl(tmp_path: Path):
    said = run(TRAIN_WITHOUT_POSIX, tmp_path / "run")
    assert "trained" in said, said
    assert (tmp_path / "run" / "report.html").is_file()
    assert (tmp_path / "run" / "small" / "model.safetensors").is_file()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_no_refusal(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(occupancy._fcntl, "flock", refuse)
    with occupied(tmp_path / "run"), pytest.raises(FolderInUseError), occupied(tmp_path / "run"):
        pass
    assert [record.getMessage().count("can't be locked") for record in caplog.records] == [1]


class Windows:
    """As much of `msvcrt` as a lock needs."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.locked: list[int] = []
        self.is_taken = False

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        if self.is_taken:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.locked.append(os.lseek(descriptor, 0, os.SEEK_CUR))


def test_windows_locks_a_place_behind_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    windows = Windows()
    monkeypatch.setattr(occupancy, "_fcntl", None)
    monkeypatch.setattr(occupancy, "_msvcrt", windows)
    with occupied(tmp_path / "run"):
        assert windows.locked == [2**30]
        assert (tmp_path / "run" / LOCK).read_text().startswith(f"process {os.getpid()}")
    windows.is_taken = True
    with pytest.raises(FolderInUseError), occupied(tmp_path / "run"):
        pass


def test_who_holds_the_folder_is_said_in_one_short_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / LOCK).write_bytes(b"\x1b[31mme\n" + b"x" * 100_000)

    def busy(*_: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "busy")

    monkeypatch.setattr(occupancy._fcntl, "flock", busy)
    with pytest.raises(FolderInUseError) as caught, occupied(tmp_path):
        pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(LinkError), occupied(tmp_path / "run"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"
