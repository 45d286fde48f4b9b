"""The description that a run keeps: takes data and a folder, writes `data.json`, refuses other data."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from trainonce.identity.comparing import difference
from trainonce.identity.describing import VERSION, describe
from trainonce.naming import shown
from trainonce.sealing import write_file

FILE = "data.json"
MAX_FILE_BYTES = 64 * 2**20

log = logging.getLogger("trainonce")


class DataChangedError(ValueError):
    """Data that is not what the run was started with, or a record of it that can't be read."""


def keep_identity(folder: Path, found: dict[str, Any]) -> None:
    """Write down what a run's data is, unless that is known already."""
    if not (folder / FILE).is_file():
        write_file(folder / FILE, json.dumps(found, indent=None, separators=(",", ":")) + "\n")


def check_resumed(folder: Path, found: dict[str, Any]) -> None:
    """Raise DataChangedError if a run was started on other data than this; without a record, warn."""
    before = read_identity(folder)
    if before is None:
        log.warning(
            "%s is missing in %s: whether the data is still that of the run can't be told",
            FILE,
            shown(folder),
        )
        return
    changes = _difference(folder, before, found)
    if changes is not None:
        raise DataChangedError(
            f"the data is not what the run in {shown(folder)} was started with: {changes}. Go back to the run's data, or start a new run."
        )


def check_evaluated(folder: Path, data: Any, *, is_named: bool) -> None:
    """Raise DataChangedError if validation data or classes are not those of a run.

    If the user has named the data, other data of the same classes gives a warning. Training data may differ.
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
    advice = "Give data of the same classes."
    if not is_named:
        advice = "Go back to it, or name the data that you mean with --data-dir."
    raise DataChangedError(f"this is not the validation data of the run in {shown(folder)}: {changes}. {advice}")


def read_identity(folder: Path) -> dict[str, Any] | None:
    """What a run has written down about its data, or None if there is nothing."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ValueError("it is too large")
        found = json.loads(file.read_bytes())
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError("it is of another version")
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, error) from None
    return found


def _difference(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> str | None:
    try:
        return difference(before, now)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise _damaged(folder / FILE, error) from None


def _damaged(file: Path, error: Exception) -> DataChangedError:
    reason = shown(" ".join(str(error).split()) or type(error).__name__)
    return DataChangedError(f"{shown(file)} can't be read ({reason}). Put it back, or remove it to go on without this check.")
