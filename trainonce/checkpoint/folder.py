"""One checkpoint as a folder: `state.json`, `state.safetensors`, and `SHA256SUMS` over both.

Takes a state to a folder, completely or not at all, and a folder to the state, or says in one line why not.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainonce.checkpoint.packing import Unpackable, pack, unpack
from trainonce.sealing import find_damage, seal, write_whole

STATE_FILE = "state.json"
TENSORS_FILE = "state.safetensors"
FORMAT = "trainonce-checkpoint"
FORMAT_VERSION = 1
MAX_STATE_BYTES = 2**30


class BadCheckpoint(ValueError):
    """A checkpoint that can't be written or read."""


class NoRoom(BadCheckpoint):
    """A checkpoint that the disk didn't take; those before it are as they were."""


def write_checkpoint(folder: Path, state: Any) -> None:
    """Write the state to `folder`, in place of what is there; a failure leaves what is there as it is."""
    try:
        data, tensors = pack(state)
    except Unpackable as error:
        raise BadCheckpoint(str(error)) from None
    text = json.dumps({"format": FORMAT, "version": FORMAT_VERSION, "state": data}, allow_nan=False)

    def fill(draft: Path) -> None:
        (draft / STATE_FILE).write_text(text, encoding="utf-8")
        save_file(_apart(tensors), draft / TENSORS_FILE)
        # safetensors makes files that only their owner may read.
        shutil.copymode(draft / STATE_FILE, draft / TENSORS_FILE)
        seal(draft, (STATE_FILE, TENSORS_FILE))

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder, fill)
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise NoRoom(
            f"can't write the checkpoint {folder} ({reason}). Make room there and allow writing; earlier checkpoints are untouched."
        ) from None


def read_checkpoint(folder: Path) -> Any:
    """The state that was written; BadCheckpoint if a single bit of it differs."""
    try:
        if damage := find_damage(folder, (STATE_FILE, TENSORS_FILE)):
            raise BadCheckpoint(f"{folder} is damaged: {damage}")
        if (folder / STATE_FILE).stat().st_size > MAX_STATE_BYTES:
            raise BadCheckpoint(f"{folder / STATE_FILE} is larger than {MAX_STATE_BYTES} bytes, which no state is")
        data = json.loads((folder / STATE_FILE).read_bytes())
        if data["format"] != FORMAT or data["version"] != FORMAT_VERSION:
            raise BadCheckpoint(f"{folder} is a {data['format']!r} of version {data['version']!r}, not one that this trainonce reads")
        return unpack(data["state"], load_file(folder / TENSORS_FILE))
    except (OSError, SafetensorError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, BadCheckpoint):
            raise
        raise BadCheckpoint(f"{folder} is damaged: {type(error).__name__}: {' '.join(str(error).split())}") from None


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors takes them: dense, and none in the memory of another."""
    storages: set[int] = set()
    apart: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        storage = value.untyped_storage().data_ptr()
        apart[name] = value.clone() if storage in storages or value.untyped_storage().nbytes() != value.nbytes else value
        storages.add(storage)
    return apart
