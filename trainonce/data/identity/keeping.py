"""`data.json`: a run's data, recorded at its start and checked on resume and evaluation."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from trainonce.data.file_names import shown
from trainonce.data.identity.comparing import difference
from trainonce.data.identity.describing import VERSION, describe
from trainonce.errors import DataChangedError
from trainonce.messages.plain_text import reason_of
from trainonce.storage.atomic import write_file

FILE = "data.json"
MAX_FILE_BYTES = 64 * 2**20
MAX_VALUES = 1_500_000
"""In a file; twice as many as two listings of MAX_LISTED_FILES hold. Each takes up to 100 bytes of memory."""

log = logging.getLogger("trainonce")


def keep_identity(folder: Path, found: dict[str, Any]) -> None:
    """Record the data of a run, unless it is recorded already."""
    if not (folder / FILE).is_file():
        write_file(folder / FILE, json.dumps(found, indent=None, separators=(",", ":")) + "\n")


def check_resumed(folder: Path, found: dict[str, Any]) -> None:
    """Raise DataChangedError if a run was started with different data; warn if there is no record."""
    before = read_identity(folder)
    if before is None:
        log.warning(
            "%s is missing in %s: can't check whether the data has changed since the run was started",
            FILE,
            shown(folder),
        )
        return
    changes = _difference(folder, before, found)
    if changes is not None:
        raise DataChangedError(
            f"the data has changed since the run in {shown(folder)} was started: {changes}. Restore the "
            "run's data, or start a new run."
        )


def check_evaluated(folder: Path, data: Any, *, is_named: bool) -> None:
    """Raise DataChangedError if validation data or classes differ from those of a run.

    If the user has named the data, other data with the same classes gives a warning. The training data is
    not compared.
    """
    before = read_identity(folder)
    if before is None:
        return
    found = describe(data, parts=("validation",))
    changes = _difference(folder, before, found)
    if changes is None:
        return
    # The data that `fit` is given has no names of classes, and says nothing about them.
    is_other_task = before.get("classes") is not None and before["classes"] != found["classes"]
    if is_named and not is_other_task:
        log.warning("this is not the validation data of the run in %s: %s", shown(folder), changes)
        return
    advice = "Pass data with the same classes."
    if not is_named:
        advice = "Restore it, or pass other data with --data-dir."
    raise DataChangedError(
        f"this is not the validation data of the run in {shown(folder)}: {changes}. {advice}"
    )


def warn_of_other_data(folder: Path, dense: Path) -> None:
    """Warn if a run and the dense run that it is compared with were measured on different data."""
    try:
        one, other = (
            {name: part for name, part in (read_identity(place) or {}).items() if name != "training"}
            for place in (dense, folder)
        )
        changes = _difference(folder, one, other)
    except DataChangedError as error:
        changes = reason_of(error)
    if changes is not None:
        log.warning(
            "the runs in %s and %s were not measured on the same data: %s",
            shown(folder),
            shown(dense),
            changes,
        )


def read_identity(folder: Path) -> dict[str, Any] | None:
    """The record of a run's data; None if there is none."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ValueError("it is too large")
        content = file.read_bytes()
        # One other character makes all others of a text take 4 bytes; we write none.
        if not content.isascii() or sum(content.count(mark) for mark in (b"[", b"{", b",")) > MAX_VALUES:
            raise ValueError("it has unexpected content")
        found = json.loads(content)
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError("its version is unknown")
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, error) from None
    return found


def _difference(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> str | None:
    try:
        return difference(before, now)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise _damaged(folder / FILE, error) from None


def _damaged(file: Path, error: Exception) -> DataChangedError:
    reason = reason_of(error)
    return DataChangedError(
        f"{shown(file)} can't be read ({reason}). Restore it, or remove it to skip this check."
    )
