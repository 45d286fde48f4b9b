"""One process at a time in a run's folder: holds a lock in it for as long as a block runs.

The lock belongs to an open file (`flock`), not to a process as POSIX record locks do: those are lost as soon
as the process closes any other handle on the same file, which copying the folder does. A forked child shares
open files, and would hold the lock after its parent was killed; so a child closes them as its first act.
Programs that are started get none: Python's files close on exec.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from trainonce.errors import FolderInUseError
from trainonce.messages.plain_text import shown, shown_path
from trainonce.storage.atomic import open_own

LOCK = ".lock"
_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL))
"""What file systems without such locks answer."""
_FAR = 2**30
"""On Windows nobody else can read what is locked, so the lock is far behind the content."""

log = logging.getLogger("trainonce")
_held: dict[Path, IO[str]] = {}
"""The folders that this process holds, and the open files with their locks."""


def _import_if_there(name: str) -> Any:
    with suppress(ImportError):
        return importlib.import_module(name)
    return None


_fcntl, _msvcrt = _import_if_there("fcntl"), _import_if_there("msvcrt")


@contextmanager
def occupied(folder: Path) -> Iterator[None]:
    """Hold the folder for this process alone; the lock of a killed process is gone with it."""
    folder.mkdir(parents=True, exist_ok=True)
    key = folder.resolve()
    with open_own(folder / LOCK, "a+") as stream:
        if key in _held or not _is_locked(stream, folder):
            raise FolderInUseError(
                f"{shown_path(folder)} is in use by {_holder(stream)}. Wait for it, stop it, or choose "
                "another out."
            )
        _held[key] = stream
        try:
            stream.truncate(0)
            stream.write(
                f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
            )
            stream.flush()
            yield
        finally:
            # In a forked child the file is closed, and the lock is its parent's.
            if _held.pop(key, None) is not None:
                # The file stays: without it, two processes could hold locks on two files of this name.
                with suppress(OSError):
                    stream.truncate(0)


def _is_locked(stream: IO[str], folder: Path) -> bool:
    """Lock the file; False if another process holds it. Without locks, warn and go on."""
    try:
        if _fcntl is not None:
            _fcntl.flock(stream, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        elif _msvcrt is not None:
            os.lseek(stream.fileno(), _FAR, os.SEEK_SET)
            _msvcrt.locking(stream.fileno(), _msvcrt.LK_NBLCK, 1)
        else:
            raise OSError(errno.ENOSYS, "this Python has no locks")
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            return False
        log.warning(
            "%s can't be locked (%s): make sure that no other process writes to it.",
            shown_path(folder),
            shown(error.strerror or error),
        )
    return True


def _holder(stream: IO[str]) -> str:
    """Who holds the folder, as the file says."""
    try:
        stream.seek(0)
        return shown(stream.read(200)) or "another process"
    except (OSError, UnicodeDecodeError):
        return "another process"


def _leave_to_parent() -> None:
    """In a forked child: give up the open files, so that the locks end with the parent."""
    for stream in _held.values():
        with suppress(OSError):
            # Another file in its place: Python still takes the number for this one's, and will close it.
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, stream.fileno(), inheritable=False)
            os.close(nothing)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
