"""What a run writes while it trains: metrics, checkpoints, the small model and the report.

A full disk must not end a long run: the user is told once, nothing half-written is left behind, and the next
save tries again.
"""

from __future__ import annotations

import copy
import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainonce.data.identity.keeping import FILE as IDENTITY
from trainonce.errors import DiskFullError
from trainonce.runs import folder as run_folder
from trainonce.runs.file_names import (
    CHECKPOINTS,
    CONTROLLER_SAMPLES,
    REPORT,
    SMALL,
    TENSORBOARD,
    WRITTEN_FIRST,
)
from trainonce.runs.scalars import Scalars
from trainonce.storage.atomic import remove_whole, write_file
from trainonce.storage.checkpoint import save_checkpoint
from trainonce.zoo.artifacts import load, save

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Records:
    """The files of one run; `tell` shows a line to the user."""

    def __init__(self, folder: Path, tell: Callable[[str], None], *, scalars: Scalars | None = None) -> None:
        self.folder = folder
        self._scalars = scalars
        self._has_told_scalars = False
        self._tell = tell
        self._is_full = False
        self._is_behind = False
        """Whether records are missing on disk, or the last line is incomplete."""

    def begin(self, history: Sequence[Mapping[str, Any]], controller_samples: Sequence[int]) -> None:
        """Write what is known at the start; SettingError if the disk is full already."""
        with run_folder.room_in(self.folder):
            run_folder.write_history(self.folder, history)
            write_file(self.folder / CONTROLLER_SAMPLES, json.dumps(controller_samples) + "\n")

    def add(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Append the last record, and those before it that didn't fit on the disk."""
        try:
            if self._is_behind or len(history) == 1:
                # The first record says which metrics there are.
                run_folder.write_history(self.folder, history)
            else:
                run_folder.append_record(self.folder, history)
            self._is_behind = False
        except OSError as error:
            self._is_behind = True
            self._tell_full(f"can't write into {self.folder} ({' '.join(str(error).split())}).")
        self._add_scalars(history)

    def save(self, step: int, state: Any, *, keep_last: int) -> bool:
        """Write a checkpoint; False if the disk is full."""
        try:
            save_checkpoint(self.folder / CHECKPOINTS, step, state, keep_last=keep_last)
        except DiskFullError as error:
            self._tell_full(str(error))
            return False
        if self._is_full:
            self._is_full = False
            self._tell(f"disk space is available again: step {step} was saved")
        return True

    def keep(self, small: nn.Module, history: Sequence[Mapping[str, Any]]) -> None:
        """Write the small model; SettingError if the disk is full."""
        with run_folder.room_in(self.folder):
            if self._is_behind:
                run_folder.write_history(self.folder, history)
            place = self.folder / SMALL
            if not _holds(place, small):
                if os.path.lexists(place):
                    remove_whole(place)
                save(small, place)
        self._add_scalars(history)

    def finish(self, report: Mapping[str, Any]) -> None:
        """Write the report, which marks the run as finished."""
        with run_folder.room_in(self.folder):
            write_file(self.folder / REPORT, json.dumps(report) + "\n")

    def forget(self) -> None:
        """Delete what was written at the start of a run that could not begin."""
        for name in (*WRITTEN_FIRST, IDENTITY):
            (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the event file."""
        if self._scalars is not None:
            self._scalars.close()

    def _add_scalars(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write what TensorBoard shows; no run depends on it, so an error is only shown."""
        if self._scalars is None:
            return
        try:
            self._scalars.write(history)
        except OSError as error:
            line = f"can't write into {self.folder / TENSORBOARD} ({' '.join(str(error).split())})."
            if error.errno in NO_ROOM:
                self._tell_full(line)
            elif not self._has_told_scalars:
                self._has_told_scalars = True
                self._tell(f"{line} Training continues without TensorBoard.")

    def _tell_full(self, line: str) -> None:
        if not self._is_full:
            self._is_full = True
            self._tell(f"{line} Training continues and tries again at the next save.")


def _holds(place: Path, small: nn.Module) -> bool:
    """Whether this very model is there already, from a run that was killed later."""
    if not place.is_dir():
        return False
    try:
        found = load(place, into=copy.deepcopy(small)).state_dict()
    except Exception:
        # Whatever is wrong with it, or with copying the model: it is written again.
        return False
    return all(
        torch.equal(found[name], tensor)
        for name, tensor in small.state_dict().items()
        if isinstance(tensor, torch.Tensor)
    )
