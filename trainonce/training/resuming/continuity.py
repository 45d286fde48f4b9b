"""Whether a run can be saved and resumed, and what has changed since it was started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainonce.errors import SettingError
from trainonce.messages.plain_text import shown
from trainonce.runs import folder as run_folder
from trainonce.runs.plain_files import UnreadableFileError, read_json_values
from trainonce.storage.artifact.manifest import Manifest
from trainonce.storage.checkpoint.packing import PackingError, pack
from trainonce.training.loop.trainer import Trainer
from trainonce.training.settings import RENAMED, Settings, as_plain
from trainonce.zoo.names import how_to_resume

WATCHED = ("trainonce", "torch", "cpu", "device", "threads", "processes")
"""Parts of the environment that can change how results are rounded."""


def check_saveable(trainer: Trainer) -> None:
    """Raise SettingError if the run's state can't be saved: now, not after hours of training."""
    Manifest.of(trainer.result_model)
    try:
        pack(trainer.state_dict())
    except PackingError as error:
        raise SettingError(f"this run can't be saved: {error} Without out, nothing is saved.") from None


def check_config(folder: Path, config: Mapping[str, Any], *, may_differ: frozenset[str]) -> None:
    """Raise SettingError if the run in the folder was started with different settings."""
    before, defaults = run_folder.read_config(folder), as_plain(Settings())
    # A run of an earlier trainonce lacks newer settings; their defaults are what it did.
    newer = {
        name
        for name, value in config.items()
        if name not in before and name in defaults and defaults[name] == value
    }
    unused = {name for name in RENAMED if not before.get(name)}
    run_folder.check_same(folder, config, may_differ=may_differ | newer | unused)


def words_on_resuming(out: Path | None, config: Mapping[str, Any], *, is_saved: bool) -> str:
    """How to go on with a run that stops now."""
    if out is None:
        return "Nothing was saved: no out folder was given."
    advice = f"Resume with: {how_to_resume(out, config)}"
    return advice if is_saved else f"This step could not be saved: free some disk space first. {advice}"


def changed_environment(file: Path, now: Mapping[str, Any]) -> list[str]:
    """What has changed since the run was started, such as `threads 2 -> 1`."""
    try:
        before = read_json_values(file)
    except UnreadableFileError:
        # A missing or damaged file is no reason to stop: the run doesn't depend on it.
        return []
    if not isinstance(before, dict):
        return []
    changed = [name for name in WATCHED if name in before and name in now and before[name] != now[name]]
    return [f"{name} {shown(before[name])} -> {now[name]}" for name in changed]
