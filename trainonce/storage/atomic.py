"""Folders and files that are complete or absent.

Takes content to the disk under sha256 sums, and never writes or removes through a link.

All that the library writes into a folder goes through here. The folder that the user names may be a link;
what is inside it may not.
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
    """The content of a folder's sums, as far as it can be right."""
    if not (folder / SUMS_FILE).is_file():
        # Opening a pipe would block until somebody writes to it.
        raise FileNotFoundError(f"there is no {SUMS_FILE}")
    with (folder / SUMS_FILE).open("rb") as stream:
        return stream.read(4096)


def flush_file(file: Path) -> None:
    """Wait until a file's content is on the disk."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":
        # Windows opens no folders; it keeps names in order by itself.
        return
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
    found = read_sums(folder)
    lines = sum_lines({name: digest(folder / name) for name in names})
    if found == b"".join(lines):
        return None
    damaged = next((name for name, line in zip(names, lines, strict=True) if line not in found), SUMS_FILE)
    return f"{damaged} was cut short or changed: its sha256 differs"


def is_link(path: Path) -> bool:
    """Whether a path is a symbolic link, or what Windows calls a junction."""
    return path.is_symlink() or (os.name == "nt" and getattr(os.path, "isjunction", lambda _: False)(path))


def refuse_links(path: Path, *, within: Path) -> None:
    """Raise LinkError if `path`, or a folder on the way to it from `within`, is a link."""
    assert within in path.parents, f"{path} is not in {within}"
    for place in (path, *path.parents):
        if place == within:
            return
        if is_link(place):
            raise LinkError(
                f"{shown_path(place)} is a link, and trainonce writes through none. Remove the link, or put "
                "the real file or folder there."
            )


def draft_of(target: Path) -> Path:
    """A new name beside `target` for what is still to be written.

    Nobody can take it for a file of the user.
    """
    return target.with_name(f".trainonce-draft-{uuid4().hex}-{target.name}")


def is_draft(path: Path) -> bool:
    """Whether a file or folder is one that a killed process of ours has left."""
    return _DRAFT.fullmatch(path.name) is not None and not is_link(path)


def drafts_in(folder: Path) -> list[tuple[Path, str]]:
    """What killed processes have left in a folder, each with the name that it was to have.

    What was replaced comes last.
    """
    found = (
        [(path, _DRAFT.fullmatch(path.name)) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    )
    drafts = [(path, match) for path, match in found if match is not None and not is_link(path)]
    return [
        (path, match["name"]) for path, match in sorted(drafts, key=lambda draft: draft[1]["old"] is not None)
    ]


def remove_drafts(folder: Path, *, within: Path | None = None) -> None:
    """Remove what killed processes have left in a folder; only while no other process writes there."""
    if within is not None and folder != within:
        refuse_links(folder, within=within)
    for path, _ in drafts_in(folder):
        _remove(path)


def write_whole(target: Path, fill: Callable[[Path], None], *, within: Path | None = None) -> None:
    """Give a folder that `fill` writes its name when it is complete, in place of one that has it.

    A kill leaves drafts; at any moment either the old folder or the new one is complete, under its name
    or as a draft.
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
    """Remove a folder so that nobody finds half of it under its name.

    A kill leaves at most a hidden draft.
    """
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
    """Replace a file by one with this content, completely or not at all."""
    refuse_links(target, within=within or target.parent)
    draft = draft_of(target)
    try:
        # Names of files that are no UTF-8 must not stop a report: they are written escaped.
        draft.write_text(content, encoding="utf-8", errors="backslashreplace")
        flush_file(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def open_own(file: Path, mode: str, *, within: Path | None = None) -> IO[str]:
    """A text file of ours, opened without following a link; made if it isn't there.

    What is no ordinary file is refused.
    """
    refuse_links(file, within=within or file.parent)

    def opener(path: str, flags: int) -> int:
        # Not blocking: a pipe of this name would wait for a reader for ever.
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)

    stream = open(file, mode, encoding="utf-8", opener=opener)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise LinkError(f"{shown_path(file)} is no ordinary file. Remove it.")
    return stream
