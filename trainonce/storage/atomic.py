"""Atomic writes: a file or folder is complete or absent, and sealed with sha256 sums.

Everything the library writes goes through here, and nothing is written or removed through a symlink: the
folder that a user names may be one, what is inside it may not.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from trainonce.errors import LinkError
from trainonce.messages.plain_text import shown_path

SUMS_FILE = "SHA256SUMS"
_DRAFT = re.compile(r"\.trainonce-draft-[0-9a-f]{32}-(?P<name>.+?)(?P<old>\.old)?")


def digest(file: Path) -> str:
    """The sha256 of a file's content."""
    found = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(2**20):
            found.update(chunk)
    return found.hexdigest()


def sum_lines(digests: Mapping[str, str]) -> list[bytes]:
    """The lines that `sha256sum --check` reads."""
    return [f"{value}  {name}\n".encode() for name, value in digests.items()]


def read_sums(folder: Path) -> bytes:
    """The content of a folder's SHA256SUMS, up to more than a valid one has."""
    if not (folder / SUMS_FILE).is_file():
        # Opening a pipe would block until somebody writes to it.
        raise FileNotFoundError(f"there is no {SUMS_FILE}")
    with (folder / SUMS_FILE).open("rb") as stream:
        return stream.read(4096)


def flush_file(file: Path) -> None:
    """Fsync a file."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Fsync a folder, so that renames in it are durable."""
    if os.name == "nt":
        # Windows can't open folders, and orders metadata writes itself.
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(folder: Path, names: Iterable[str]) -> None:
    """Write SHA256SUMS for these files, and fsync everything."""
    files = [folder / name for name in names]
    (folder / SUMS_FILE).write_bytes(b"".join(sum_lines({file.name: digest(file) for file in files})))
    for file in (*files, folder / SUMS_FILE):
        flush_file(file)
    flush_folder(folder)


def find_damage(folder: Path, names: Iterable[str]) -> str | None:
    """Why a sealed folder is corrupt, in a few words; None if it is intact."""
    names = list(names)
    for name in (SUMS_FILE, *names):
        if not (folder / name).is_file():
            return f"{name} is missing"
    found = read_sums(folder)
    lines = sum_lines({name: digest(folder / name) for name in names})
    if found == b"".join(lines):
        return None
    damaged = next((name for name, line in zip(names, lines, strict=True) if line not in found), SUMS_FILE)
    return f"{damaged} is truncated or modified (sha256 mismatch)"


def is_link(path: Path) -> bool:
    """Whether a path is a symlink or a Windows junction."""
    return path.is_symlink() or (os.name == "nt" and getattr(os.path, "isjunction", lambda _: False)(path))


def refuse_links(path: Path, *, within: Path) -> None:
    """Raise LinkError if `path`, or a folder between `within` and it, is a symlink."""
    assert within in path.parents, f"{path} is not in {within}"
    for place in (path, *path.parents):
        if place == within:
            return
        if is_link(place):
            raise LinkError(
                f"{shown_path(place)} is a symlink, and trainonce doesn't write through symlinks. Remove it, "
                "or replace it with the real file or folder."
            )


def draft_of(target: Path) -> Path:
    """A unique temporary path next to `target`; no user's file has such a name."""
    return target.with_name(f".trainonce-draft-{uuid4().hex}-{target.name}")


def is_draft(path: Path) -> bool:
    """Whether a path is a draft left behind by a killed process."""
    return _DRAFT.fullmatch(path.name) is not None and not is_link(path)


def drafts_in(folder: Path) -> list[tuple[Path, str]]:
    """Drafts that killed processes left in a folder, each with its intended name; replaced ones last."""
    found = (
        [(path, _DRAFT.fullmatch(path.name)) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    )
    drafts = [(path, match) for path, match in found if match is not None and not is_link(path)]
    return [
        (path, match["name"]) for path, match in sorted(drafts, key=lambda draft: draft[1]["old"] is not None)
    ]


def remove_drafts(folder: Path, *, within: Path | None = None) -> None:
    """Remove drafts of killed processes; only while no other process writes to the folder."""
    if within is not None and folder != within:
        refuse_links(folder, within=within)
    for path, _ in drafts_in(folder):
        _remove(path)


def write_whole(target: Path, fill: Callable[[Path], None], *, within: Path | None = None) -> None:
    """Write a folder with `fill` and move it into place, replacing an existing one.

    At any moment either the old folder or the new one is complete, under its name or as a draft.
    """
    refuse_links(target, within=within or target.parent)
    draft = draft_of(target)
    old = draft.with_name(f"{draft.name}.old")
    try:
        draft.mkdir()
        fill(draft)
        if os.path.lexists(target):
            target.rename(old)
        draft.rename(target)
        flush_folder(target.parent)
    except BaseException:
        if not os.path.lexists(target) and os.path.lexists(old):
            old.rename(target)
        raise
    finally:
        if os.path.lexists(target) or not os.path.lexists(old):
            _remove(draft)
            _remove(old)


def remove_whole(folder: Path, *, within: Path | None = None) -> None:
    """Remove a folder atomically; a kill leaves at most a hidden draft."""
    refuse_links(folder, within=within or folder.parent)
    draft = draft_of(folder)
    draft = draft.with_name(f"{draft.name}.old")
    folder.rename(draft)
    _remove(draft)


def _remove(path: Path) -> None:
    """Remove a folder with all that is in it, or whatever else has this name; links are not followed."""
    if path.is_dir() and not is_link(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    # Listing a pipe like a folder would block until somebody writes to it.
    with suppress(OSError):
        path.unlink()


def write_file(target: Path, content: str, *, within: Path | None = None) -> None:
    """Replace a file atomically."""
    refuse_links(target, within=within or target.parent)
    draft = draft_of(target)
    try:
        # File names that are not valid UTF-8 are escaped, so that they can't break a report.
        draft.write_text(content, encoding="utf-8", errors="backslashreplace")
        flush_file(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def open_own(file: Path, mode: str, *, within: Path | None = None) -> IO[str]:
    """Open a text file without following symlinks, creating it if needed; only regular files are accepted."""
    refuse_links(file, within=within or file.parent)

    def opener(path: str, flags: int) -> int:
        # Non-blocking: opening a named pipe would wait for a reader forever.
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)

    stream = open(file, mode, encoding="utf-8", opener=opener)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise LinkError(f"{shown_path(file)} is not a regular file. Remove it.")
    return stream
