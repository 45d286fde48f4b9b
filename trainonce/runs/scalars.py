"""Scalars for TensorBoard: takes the records of all epochs, writes those that are not written yet."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import time
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from trainonce.errors import SettingError
from trainonce.runs.file_names import TENSORBOARD
from trainonce.storage.atomic import refuse_links

MESSAGES = "tensorboard.compat.proto"
# Not SummaryWriter, nor tensorboard.summary.Writer: both write in a thread that a full disk ends for good,
# with a traceback, and neither can take back half an event. SummaryWriter is made of these very modules.
NAMES = ("loss", "validation_loss", "top1", "top5", "lr", "keep_flops", "keep_params", "controller_loss")


def check_installed() -> None:
    """Raise SettingError if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise SettingError(
            "tensorboard is not installed. Install it with pip install tensorboard, or leave the setting out."
        )


def check_place(out: Path | None) -> None:
    """Raise SettingError if the run has no folder to write to."""
    if out is None:
        raise SettingError("tensorboard needs a folder to write to. Pass out, or turn tensorboard off.")
    refuse_links(out / TENSORBOARD, within=out)


class Scalars:
    """An event file in the run's folder; it starts with the first epoch and hides older ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / TENSORBOARD
        self._file: FileIO | None = None
        self._num_written = 0

    def write(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Append the records that are not in the file yet; all of them or, with an OSError, none."""
        if self._file is None:
            self._file = self._open()
        _write_events(self._file, [_event_of(record) for record in history[self._num_written :]])
        self._num_written = len(history)

    def _open(self) -> FileIO:
        messages = importlib.import_module(f"{MESSAGES}.event_pb2")
        refuse_links(self._folder, within=self._folder.parent)
        self._folder.mkdir(exist_ok=True)
        number = sum(1 for _ in self._folder.iterdir())
        # TensorBoard reads files in the order of their names.
        path = (
            self._folder / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{number:06d}"
        )
        file = FileIO(path, "x")
        version = messages.Event(wall_time=time.time(), file_version="brain.Event:2")
        # A session that starts at step 0 hides every event that was read before it.
        start = messages.Event(
            wall_time=time.time(), step=0, session_log=messages.SessionLog(status=messages.SessionLog.START)
        )
        try:
            _write_events(file, [version, start])
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        return file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an epoch's record that are worth a curve, by name; metrics under `metrics/`."""
    found = {name: record.get(name) for name in NAMES}
    found |= {f"metrics/{name}": value for name, value in (record.get("metrics") or {}).items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _write_events(file: FileIO, events: Sequence[Any]) -> None:
    """Write all of the events or, with an OSError, none of them."""
    before = file.tell()
    writer = importlib.import_module("tensorboard.summary.writer.record_writer").RecordWriter(_Whole(file))
    try:
        for event in events:
            writer.write(event.SerializeToString())
    except OSError:
        file.seek(before)
        file.truncate()
        raise


class _Whole:
    """A file that writes all of its data, which an unbuffered one need not do at once."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) :]


def _event_of(record: Mapping[str, Any]) -> Any:
    summaries, messages = (importlib.import_module(f"{MESSAGES}.{name}_pb2") for name in ("summary", "event"))
    numbers = numbers_of(record)
    values = [summaries.Summary.Value(tag=name, simple_value=number) for name, number in numbers.items()]
    return messages.Event(wall_time=time.time(), step=record["step"], summary=summaries.Summary(value=values))
