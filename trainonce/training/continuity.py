"""Whether a run can go on later: takes its trainer and its folder, refuses or says what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainonce.artifact.manifest import Manifest
from trainonce.checkpoint.packing import Unpackable, pack
from trainonce.plain_text import shown
from trainonce.report.plain_files import UnreadableFileError, read_json_values
from trainonce.training import run_folder
from trainonce.training.limits import BadSetting
from trainonce.training.settings import Settings, as_plain
from trainonce.training.trainer import Trainer

WATCHED = ("trainonce", "torch", "cpu", "device", "threads", "processes")
"""What of the environment rounding may depend on."""


def check_saveable(trainer: Trainer) -> None:
    """Raise a ValueError if the model or the run's state can't be written: at once, not after hours."""
    Manifest.of(trainer.result_model)
    try:
        pack(trainer.state_dict())
    except Unpackable as error:
        raise BadSetting(f"this run could not be saved: {error} Without out, nothing has to be.") from None


def check_config(folder: Path, config: Mapping[str, Any], *, may_differ: frozenset[str]) -> None:
    """Raise BadSetting if the run in the folder was started with other settings."""
    before, defaults = run_folder.read_config(folder), as_plain(Settings())
    # A run of an earlier trainonce lacks what has come since; the default is what it did.
    since = {name for name, value in config.items() if name not in before and name in defaults and defaults[name] == value}
    run_folder.check_same(folder, config, may_differ=may_differ | since)


def changed_environment(file: Path, now: Mapping[str, Any]) -> list[str]:
    """What differs from when the run began, such as `threads 2 -> 1`."""
    try:
        before = read_json_values(file)
    except UnreadableFileError:
        # It is written anew, or of no use: nothing of the run depends on it.
        return []
    if not isinstance(before, dict):
        return []
    changed = [name for name in WATCHED if name in before and name in now and before[name] != now[name]]
    return [f"{name} {shown(before[name])} -> {now[name]}" for name in changed]
