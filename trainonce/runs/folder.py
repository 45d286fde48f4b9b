"""A run's folder: writes settings, metrics and the log of a run, and tells how far the run got.

One process at a time may write there.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from trainonce.errors import SettingError
from trainonce.messages.plain_text import shorten, shown, shown_path
from trainonce.runs.config_file import read_yaml, to_yaml
from trainonce.runs.file_names import (
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    FILES,
    LOG,
    METRICS,
    REPORT,
    SMALL,
    STARTED,
    SUMMARY,
)
from trainonce.runs.occupancy import LOCK, occupied
from trainonce.storage.atomic import is_draft, is_link, open_own, refuse_links, remove_drafts, write_file
from trainonce.storage.checkpoint import recover
from trainonce.zoo.names import how_to_resume

COLUMNS = (
    "epoch",
    "step",
    "loss",
    "validation_loss",
    "top1",
    "top5",
    "lr",
    "phase",
    "keep_flops",
    "controller_loss",
    "seconds",
)

log = logging.getLogger("trainonce")


class Stage(Enum):
    """How far the run in a folder got."""

    NEW = 0
    UNFINISHED = 1
    FINISHED = 2


def stage_of(folder: Path) -> Stage:
    """How far the run in a folder got; SettingError if the folder holds something else."""
    if not folder.exists() or (folder.is_dir() and all(_is_left_over(entry) for entry in folder.iterdir())):
        return Stage.NEW
    if not (folder / CONFIG).is_file():
        raise SettingError(
            f"out is {shown_path(folder)}, which is not empty and has no run in it. Choose another folder, "
            "or empty this one."
        )
    return Stage.FINISHED if (folder / REPORT).is_file() else Stage.UNFINISHED


def _is_left_over(entry: Path) -> bool:
    """Whether a run that was killed before it began may have left this behind."""
    return is_draft(entry) or (entry.name == LOCK and entry.is_file() and not is_link(entry))


def check_start(folder: Path, *, resume: bool) -> Stage:
    """How far the run in a folder got; SettingError if it is finished, or unfinished without `resume`."""
    stage = stage_of(folder)
    if stage is Stage.FINISHED:
        raise SettingError(
            f"the run in {shown_path(folder)} is finished. Look at it with trainonce report "
            f"{shown_path(folder)}, or choose another out."
        )
    if stage is Stage.UNFINISHED and not resume:
        # A run that another process is training right now gets another message.
        with occupied(folder):
            raise SettingError(
                f"{shown_path(folder)} holds a run that is not finished. "
                f"Resume with {how_to_resume(folder, read_config(folder))}, or choose another out."
            )
    return stage


def has_checkpoint(folder: Path) -> bool:
    """Whether the run in a folder can only go on from a checkpoint, and not begin again."""
    return any(path.is_dir() for path in (folder / CHECKPOINTS).glob(f"step-{9 * '[0-9]'}"))


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of the run in a folder."""
    return read_yaml(folder / CONFIG)


def read_unchanged_config(folder: Path, *, may_differ: frozenset[str]) -> dict[str, Any]:
    """The configuration of the run in a folder; SettingError if it was edited since the run started."""
    found, before = read_config(folder), _read_started(folder)
    if before is None:
        return found
    for name in [*before, *found]:
        if name not in may_differ and (name in found, found.get(name)) != (name in before, before.get(name)):
            raise SettingError(
                f"{shown(name)} is {_worded(found, name)} in {shown_path(folder / CONFIG)}, but the run was "
                f"started with {_worded(before, name)}. Change it back, or start a new run: trainonce train "
                "--config FILE --out FOLDER."
            )
    return found


def check_same(folder: Path, config: Mapping[str, Any], *, may_differ: frozenset[str]) -> None:
    """Raise SettingError if the run in a folder was started with other settings."""
    before = read_unchanged_config(folder, may_differ=may_differ)
    for name in [*config, *before]:
        if name not in may_differ and before.get(name) != config.get(name):
            raise SettingError(
                f"{name} is {shorten(config.get(name))}, but the run in {shown_path(folder)} was started "
                f"with {shorten(before.get(name))}. Resume with {how_to_resume(folder, before)}, or choose "
                "another out."
            )


def _worded(values: Mapping[str, Any], name: str) -> str:
    return shorten(values[name]) if name in values else "missing"


def _started_text(text: str) -> str:
    """The settings under their checksum, so that nobody edits both by mistake."""
    return (
        f"# sha256 {hashlib.sha256(text.encode()).hexdigest()}: a copy of {CONFIG}, to compare with on "
        f"resume\n{text}"
    )


def _read_started(folder: Path) -> dict[str, Any] | None:
    """The settings that the run was started with; None if it has no such copy."""
    file = folder / STARTED
    if not file.is_file():
        return None
    found = read_yaml(file)
    text = file.read_text(encoding="utf-8")
    if text != _started_text(text.partition("\n")[2]):
        raise SettingError(
            f"{shown_path(file)} was changed: its sha256 differs. Restore it from a copy, or start a new run."
        )
    return found


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Turn a full disk or missing permission into one line that names the folder."""
    try:
        yield
    except OSError as error:
        raise SettingError(
            f"can't write into {shown_path(folder)} ({shown(error, most=300)}). Free some space there, and "
            "check its permissions."
        ) from None


class _PatientFile(logging.FileHandler):
    """A log file that drops lines when the disk is full; the run itself tells the user."""

    def _open(self) -> Any:
        return open_own(Path(self.baseFilename), "a")

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the line."""

    def close(self) -> None:
        """Close the file, even if its last lines can't be written."""
        with suppress(OSError):
            super().close()


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Copy whatever trainonce logs to `log.txt`."""
    handler = _PatientFile(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = log.level
    log.addHandler(handler)
    if log.getEffectiveLevel() > logging.INFO:
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        handler.close()


def clear(folder: Path) -> None:
    """Clean up after a killed run: name its complete checkpoints, delete what is half-written.

    Only for the process that holds the folder. LinkError if anything that a run writes to is a link.
    """
    for name in (*FILES, CHECKPOINTS, SMALL):
        refuse_links(folder / name, within=folder)
    for path in recover(folder / CHECKPOINTS):
        log.warning(
            "%s was complete, but the run was killed before it got its name; it is used.", shown_path(path)
        )
    for place in (folder, folder / CHECKPOINTS, folder / SMALL):
        remove_drafts(place, within=folder)


def write_start(folder: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
    """Write the settings and the environment of a run that begins."""
    text = to_yaml(config)
    for name, content in (
        (CONFIG, text),
        (ENVIRONMENT, json.dumps(environment, indent=2) + "\n"),
        (STARTED, _started_text(text)),
    ):
        # A run that was killed in between has only some of them; a resumed run keeps what it has.
        if not (folder / name).is_file():
            write_file(folder / name, content)


def write_history(folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Write all records again: after a resume, those of the lost steps must go."""
    write_file(folder / METRICS, "".join(json.dumps(record) + "\n" for record in history))
    columns = _columns(history)
    write_file(folder / SUMMARY, _rows([dict(zip(columns, columns, strict=True)), *history], columns))


def append_record(folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Append the last record to both files, which have the first one already."""
    record, columns = history[-1], _columns(history)
    with open_own(folder / METRICS, "a") as stream:
        stream.write(json.dumps(record) + "\n")
    with open_own(folder / SUMMARY, "a") as stream:
        stream.write(_rows([record], columns))


def _columns(history: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns of all runs, and the metrics of the first epoch."""
    own = (history[0].get("metrics") or {}) if history else {}
    return (*COLUMNS, *(name for name in own if name not in COLUMNS))


def _rows(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer: Any = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writerows((record.get("metrics") or {}) | dict(record) for record in records)
    return text.getvalue()
