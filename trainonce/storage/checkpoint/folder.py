"""One checkpoint as a folder: `state.json`, `state.safetensors`, and `SHA256SUMS` over both.

Writing is atomic; reading returns the state, or raises with one line that says why not.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainonce.errors import CheckpointError, DiskFullError
from trainonce.messages.plain_text import quoted, shown, shown_path
from trainonce.storage.atomic import find_damage, read_sums, seal, sum_lines, write_whole
from trainonce.storage.checkpoint.packing import PackingError, pack, unpack

STATE_FILE = "state.json"
TENSORS_FILE = "state.safetensors"
FORMAT = "trainonce-checkpoint"
FORMAT_VERSION = 1
_SUMS = re.compile(rb"".join(sum_lines({name: "[0-9a-f]{64}" for name in (STATE_FILE, TENSORS_FILE)})))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds on the files of a checkpoint; a larger one is rejected before it is read."""

    state_bytes: int = 64 * 2**20
    """Of `state.json`, and of the header of `state.safetensors`.

    Parsed, JSON takes up to 25 times as much memory.
    """

    tensor_bytes: int | None = None
    """Of `state.safetensors`; None: no limit."""


def write_checkpoint(folder: Path, state: Any) -> None:
    """Write the state to `folder` atomically, replacing an existing checkpoint."""
    try:
        data, tensors = pack(state)
    except PackingError as error:
        raise CheckpointError(str(error)) from None
    text = json.dumps({"format": FORMAT, "version": FORMAT_VERSION, "state": data}, allow_nan=False)

    def fill(draft: Path) -> None:
        (draft / STATE_FILE).write_text(text, encoding="utf-8")
        save_file(_apart(tensors), draft / TENSORS_FILE)
        # safetensors creates files that only their owner can read.
        shutil.copymode(draft / STATE_FILE, draft / TENSORS_FILE)
        seal(draft, (STATE_FILE, TENSORS_FILE))

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder, fill, within=folder.parent.parent)
    except (OSError, SafetensorError) as error:
        raise DiskFullError(
            f"can't write the checkpoint {shown_path(folder)} ({shown(error, most=300)}). "
            f"Free disk space and check permissions; earlier checkpoints are intact."
        ) from None


def read_checkpoint(folder: Path, *, bounds: Bounds | None = None) -> Any:
    """The state as it was written; CheckpointError if a bit differs or a file exceeds `bounds`."""
    try:
        _check_sizes(folder, bounds or Bounds())
        if damage := find_damage(folder, (STATE_FILE, TENSORS_FILE)):
            raise CheckpointError(f"{shown_path(folder)} is corrupt: {damage}")
        data = json.loads((folder / STATE_FILE).read_bytes())
        if data["format"] != FORMAT or data["version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"{shown_path(folder)} is a {quoted(data['format'])} of version {quoted(data['version'])}, "
                f"which this trainonce can't read"
            )
        return unpack(data["state"], load_file(folder / TENSORS_FILE))
    except (
        OSError,
        SafetensorError,
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{shown_path(folder)} is corrupt: {type(error).__name__}: {shown(error)}"
        ) from None


def is_written(folder: Path) -> bool:
    """Whether a checkpoint was written to its end, whatever its name is: the sums come last.

    The files are not read, which could take hours; `read_checkpoint` compares them with the sums.
    """
    try:
        names = (STATE_FILE, TENSORS_FILE)
        return _SUMS.fullmatch(read_sums(folder)) is not None and all(
            (folder / name).is_file() for name in names
        )
    except OSError:
        return False


def _check_sizes(folder: Path, bounds: Bounds) -> None:
    """Raise CheckpointError if a file is larger than any this run could have written."""
    for name, most in ((STATE_FILE, bounds.state_bytes), (TENSORS_FILE, bounds.tensor_bytes)):
        if most is not None and (folder / name).is_file() and (folder / name).stat().st_size > most:
            size = (folder / name).stat().st_size
            raise CheckpointError(
                f"{shown_path(folder / name)} has {size} bytes, but a state of this run has at most {most}"
            )
    if (folder / TENSORS_FILE).is_file():
        with (folder / TENSORS_FILE).open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
        if header > bounds.state_bytes:
            raise CheckpointError(
                f"{shown_path(folder / TENSORS_FILE)} is corrupt: its header can't be {header} bytes long"
            )


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors needs them: contiguous, and none sharing storage with another."""
    storages: set[int] = set()
    apart: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        storage = value.untyped_storage().data_ptr()
        apart[name] = (
            value.clone()
            if storage in storages or value.untyped_storage().nbytes() != value.nbytes
            else value
        )
        storages.add(storage)
    return apart
