"""The checkpoints of a run: takes the newest state and drops the oldest, finds the newest that is sound."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainonce.checkpoint.folder import BadCheckpoint, read_checkpoint, write_checkpoint
from trainonce.sealing import remove_whole

_NAME = re.compile(r"step-(\d{9})")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A sound checkpoint."""

    step: int
    path: Path
    state: Any
    refused: tuple[str, ...]
    """What is wrong with those that are newer, one line each."""


def save_checkpoint(root: Path, step: int, state: Any, *, keep_last: int) -> Path:
    """Write the state of a step; only the newest `keep_last` checkpoints stay. The oldest go after the newest is complete."""
    path = checkpoint_path(root, step)
    write_checkpoint(path, state)
    for _, old in _checkpoints(root)[keep_last:]:
        # One that can't be removed is in nobody's way.
        with suppress(OSError):
            remove_whole(old)
    return path


def checkpoint_path(root: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return root / f"step-{step:09d}"


def find_newest(root: Path) -> Found | None:
    """The newest sound checkpoint, or None if there is none; BadCheckpoint if there are some and all are damaged."""
    refused: list[str] = []
    for step, path in _checkpoints(root):
        try:
            return Found(step=step, path=path, state=read_checkpoint(path), refused=tuple(refused))
        except BadCheckpoint as error:
            refused.append(str(error))
    if refused:
        raise BadCheckpoint(f"no checkpoint in {root} can be read; the newest: {refused[0]}. Start again in another folder.")
    return None


def _checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Newest first."""
    found = [(path, _NAME.fullmatch(path.name)) for path in root.iterdir()] if root.is_dir() else []
    return sorted(((int(match[1]), path) for path, match in found if match and path.is_dir()), reverse=True)
