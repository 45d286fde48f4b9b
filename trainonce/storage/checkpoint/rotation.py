"""The checkpoints of a run: saves the newest, drops the oldest, finds the newest intact one."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainonce.errors import CheckpointError
from trainonce.messages.plain_text import shown_path
from trainonce.storage.atomic import drafts_in, refuse_links, remove_whole
from trainonce.storage.checkpoint.folder import Bounds, is_written, read_checkpoint, write_checkpoint

_NAME = re.compile(r"step-(\d{9})")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """An intact checkpoint."""

    step: int
    path: Path
    state: Any
    refused: tuple[str, ...]
    """Why newer ones were skipped, one line each."""


def save_checkpoint(root: Path, step: int, state: Any, *, keep_last: int) -> Path:
    """Save the state of a step, then remove all but the newest `keep_last` checkpoints."""
    path = checkpoint_path(root, step)
    write_checkpoint(path, state)
    for _, old in _checkpoints(root)[keep_last:]:
        # One that can't be removed does no harm.
        with suppress(OSError):
            remove_whole(old, within=root.parent)
    return path


def recover(root: Path) -> list[Path]:
    """Rename complete checkpoints that a kill has left as drafts; only while no other process writes.

    A kill between two renames leaves the replaced checkpoint, its replacement, or both as drafts.
    """
    refuse_links(root, within=root.parent)
    found = []
    for draft, name in drafts_in(root):
        path = root / name
        if _NAME.fullmatch(name) and draft.is_dir() and not path.exists() and is_written(draft):
            draft.rename(path)
            found.append(path)
    return found


def checkpoint_path(root: Path, step: int) -> Path:
    """The folder of a step's checkpoint."""
    return root / f"step-{step:09d}"


def find_newest(
    root: Path, *, check: Callable[[int, Any], None] | None = None, bounds: Bounds | None = None
) -> Found | None:
    """The newest intact checkpoint; None if there are no checkpoints, CheckpointError if none is intact.

    `check` gets a step and its state, and raises CheckpointError to skip to the next older one.
    """
    refused: list[str] = []
    for step, path in _checkpoints(root):
        try:
            state = read_checkpoint(path, bounds=bounds)
            if check is not None:
                _apply_check(check, step, path, state)
        except CheckpointError as error:
            refused.append(str(error))
        else:
            return Found(step=step, path=path, state=state, refused=tuple(refused))
    if refused:
        raise CheckpointError(
            f"no checkpoint in {shown_path(root)} can be used; the newest: {refused[0]}. Resume with the "
            "settings that the run was started with and a newly built model, or start over in another folder."
        )
    return None


def _apply_check(check: Callable[[int, Any], None], step: int, path: Path, state: Any) -> None:
    try:
        check(step, state)
    except CheckpointError as error:
        raise CheckpointError(f"{shown_path(path)} doesn't match this run: {error}") from None


def _checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Newest first."""
    found = [(path, _NAME.fullmatch(path.name)) for path in root.iterdir()] if root.is_dir() else []
    return sorted(((int(match[1]), path) for path, match in found if match and path.is_dir()), reverse=True)
