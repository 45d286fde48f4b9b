"""A run's folder: takes what a run says about itself to `config.yaml`, `metrics.jsonl`, `summary.csv`, `env.json` and `log.txt`.

One process at a time may write there. A run that ended before it was finished is recognised.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import logging
import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

import torch
import yaml

from trainonce.sealing import is_draft, remove_drafts, write_file
from trainonce.training.limits import BadSetting, shorten

CONFIG, METRICS, SUMMARY, ENVIRONMENT, LOG, REPORT = "config.yaml", "metrics.jsonl", "summary.csv", "env.json", "log.txt", "report.json"
CHECKPOINTS, SMALL, PAGE, LOCK = "checkpoints", "small", "report.html", ".lock"
COLUMNS = ("epoch", "step", "loss", "validation_loss", "top1", "top5", "lr", "phase", "keep_flops", "controller_loss", "seconds")

log = logging.getLogger("trainonce")
_occupied_here: set[Path] = set()


class FolderInUse(ValueError):
    """A folder that another run writes to."""


class Stage(Enum):
    """How far the run in a folder is."""

    NEW = 0
    UNFINISHED = 1
    FINISHED = 2


def stage_of(folder: Path) -> Stage:
    """How far the run in a folder is; BadSetting if the folder holds something else."""
    if not folder.exists() or (folder.is_dir() and all(entry.name == LOCK or is_draft(entry) for entry in folder.iterdir())):
        return Stage.NEW
    if not (folder / CONFIG).is_file():
        raise BadSetting(f"out is {folder}, which exists and holds no run. Choose another, or empty it.")
    return Stage.FINISHED if (folder / REPORT).is_file() else Stage.UNFINISHED


def check_start(folder: Path, *, resume: bool) -> Stage:
    """How far the run in a folder is; BadSetting if it is finished, or left behind and not to be resumed."""
    stage = stage_of(folder)
    if stage is Stage.FINISHED:
        raise BadSetting(f"the run in {folder} is finished. Look at it with trainonce report {folder}, or choose another out.")
    if stage is Stage.UNFINISHED and not resume:
        # Someone else's run in progress is told apart from one that was left behind.
        with occupied(folder):
            raise BadSetting(
                f"{folder} holds a run that is not finished. Go on with trainonce train --resume {folder}, or choose another out."
            )
    return stage


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of the run in a folder."""
    return read_yaml(folder / CONFIG)


def read_yaml(file: Path) -> dict[str, Any]:
    """A YAML file of names and values; tags that would build objects are refused."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(f"can't read {file} ({error.strerror}). Give a file of settings, such as the config.yaml of a run.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise BadSetting(f"{file} is no plain YAML ({' '.join(str(error).split())[:160]}). Mend it, or leave it out.") from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise BadSetting(f"{file} holds no names with values. Write one setting per line, such as lr: 0.1.")
    return found


def check_same(folder: Path, config: Mapping[str, Any], *, may_differ: frozenset[str]) -> None:
    """Raise BadSetting if the run in a folder was started with other settings."""
    before = read_config(folder)
    for name in [*config, *before]:
        if name not in may_differ and before.get(name) != config.get(name):
            raise BadSetting(
                f"{name} is {shorten(config.get(name))}, and the run in {folder} was started with {shorten(before.get(name))}. "
                f"Go on with trainonce train --resume {folder}, or choose another out."
            )


@contextmanager
def occupied(folder: Path) -> Iterator[None]:
    """The folder for this process alone; a lock that a killed process has left is no hindrance."""
    folder.mkdir(parents=True, exist_ok=True)
    key = folder.resolve()
    stream = (folder / LOCK).open("a+", encoding="utf-8")
    try:
        try:
            if key in _occupied_here:
                raise BlockingIOError
            # A record lock is not inherited by reading processes, and is gone when its process is.
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.seek(0)
            who = stream.read().strip() or "another process"
            raise FolderInUse(f"{folder} is in use by {who}. Wait for it, stop it, or choose another out.") from None
        _occupied_here.add(key)
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        stream.flush()
        try:
            yield
        finally:
            _occupied_here.discard(key)
            # The file stays: without it, two processes could hold locks on two files of this name.
            stream.truncate(0)
    finally:
        stream.close()


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Inside, a disk that takes no more is told in one line that names the folder."""
    try:
        yield
    except OSError as error:
        raise BadSetting(f"can't write into {folder} ({' '.join(str(error).split())}). Make room there, and allow writing.") from None


class _PatientFile(logging.FileHandler):
    """A log that a full disk makes shorter, and that says nothing about it: the run itself does."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leave the line out."""

    def close(self) -> None:
        """Close the file, also where its last lines find no room."""
        with suppress(OSError):
            super().close()


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Whatever trainonce says goes to `log.txt`, too."""
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
    """Remove what a killed run has left half-written; only for the process that has the folder."""
    for place in (folder, folder / CHECKPOINTS, folder / SMALL):
        remove_drafts(place)


def write_start(folder: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
    """What a run is and where it began; the configuration is the file that `trainonce train --config` takes."""
    for name, content in ((CONFIG, to_yaml(config)), (ENVIRONMENT, json.dumps(environment, indent=2) + "\n")):
        # A run that was killed in between has the one and not the other; a run that goes on keeps both.
        if not (folder / name).is_file():
            write_file(folder / name, content)


def to_yaml(config: Mapping[str, Any]) -> str:
    """A configuration as text, in its order."""
    return yaml.safe_dump(dict(config), sort_keys=False, default_flow_style=None, width=120)


def write_history(folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """All records anew: after a resume, what the lost steps had written must go."""
    write_file(folder / METRICS, "".join(json.dumps(record) + "\n" for record in history))
    write_file(folder / SUMMARY, _rows([dict(zip(COLUMNS, COLUMNS, strict=True)), *history]))


def append_record(folder: Path, record: Mapping[str, Any]) -> None:
    """One more line for programs, and one for spreadsheets."""
    with (folder / METRICS).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
    with (folder / SUMMARY).open("a", encoding="utf-8") as stream:
        stream.write(_rows([record]))


def describe_environment(*, seed: int, world_size: int, device: torch.device) -> dict[str, Any]:
    """Versions and hardware: what another bit may come from."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "processes": world_size,
        "seed": seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _rows(records: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer: Any = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writerows(records)
    return text.getvalue()
