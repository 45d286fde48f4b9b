"""Folders that are complete or absent: takes files to their sha256 sums, and makes sure that what was written is on the disk."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from uuid import uuid4

SUMS_FILE = "SHA256SUMS"
_DRAFT = re.compile(r"\.[0-9a-f]{32}\..+|\..+\.[0-9a-f]{32}(\.old)?")


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


def flush_file(file: Path) -> None:
    """Wait until a file's content is on the disk."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(folder: Path, names: Iterable[str]) -> None:
    """Write the sums of these files beside them, and wait until all of it is on the disk."""
    files = [folder / name for name in names]
    (folder / SUMS_FILE).write_bytes(b"".join(sum_lines({file.name: digest(file) for file in files})))
    for file in (*files, folder / SUMS_FILE):
        flush_file(file)
    flush_folder(folder)


def find_damage(folder: Path, names: Iterable[str]) -> str | None:
    """What is wrong with a sealed folder, in a few words, or None."""
    names = list(names)
    for name in (SUMS_FILE, *names):
        if not (folder / name).is_file():
            return f"there is no {name}"
    with (folder / SUMS_FILE).open("rb") as stream:
        found = stream.read(4096)
    lines = sum_lines({name: digest(folder / name) for name in names})
    if found == b"".join(lines):
        return None
    damaged = next((name for name, line in zip(names, lines, strict=True) if line not in found), SUMS_FILE)
    return f"{damaged} was cut short or changed: its sha256 differs"


def write_whole(target: Path, fill: Callable[[Path], None]) -> None:
    """Give a folder that `fill` writes its name when it is complete, in place of one that has it; a kill leaves at most hidden drafts."""
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    old = draft.with_name(f"{draft.name}.old")
    try:
        draft.mkdir()
        fill(draft)
        if os.path.lexists(target):
            target.rename(old)
        draft.rename(target)
        flush_folder(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def remove_whole(folder: Path) -> None:
    """Remove a folder so that nobody finds half of it under its name; a kill leaves at most a hidden draft."""
    draft = folder.with_name(f".{folder.name}.{uuid4().hex}.old")
    folder.rename(draft)
    shutil.rmtree(draft, ignore_errors=True)


def is_draft(path: Path) -> bool:
    """Whether a file or folder is one that a killed process has left half-written."""
    return _DRAFT.fullmatch(path.name) is not None


def remove_drafts(folder: Path) -> None:
    """Remove what killed processes have left in a folder; only while no other process writes there."""
    for path in [path for path in folder.iterdir() if is_draft(path)] if folder.is_dir() else []:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_file(target: Path, content: str) -> None:
    """Replace a file by one with this content, completely or not at all."""
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        draft.write_text(content, encoding="utf-8")
        flush_file(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
