"""States on disk without pickle.

Takes nested dicts and lists of tensors and plain values, gives them back bit for bit.

Tensors go to safetensors, everything else to JSON beside them; a state appears under its name at once or not
at all.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor


def write_state(folder: Path, state: Any) -> None:
    """Replace the state in `folder`; a process killed meanwhile leaves the old one or the new one."""
    tensors: dict[str, Tensor] = {}
    plain = _packed(state, tensors)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    save_file(tensors, unfinished / "tensors.safetensors")
    (unfinished / "plain.json").write_text(json.dumps(plain))
    old = folder.with_name(f"{folder.name}.old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    unfinished.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def read_state(folder: Path) -> Any:
    """What was written last; None if nothing was."""
    old = folder.with_name(f"{folder.name}.old")
    # Killed between the two renamings of `write_state`: the old state is whole.
    place = folder if folder.exists() else old
    if not place.exists():
        return None
    return _unpacked(json.loads((place / "plain.json").read_text()), load_file(place / "tensors.safetensors"))


def remove_state(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(folder.with_name(f"{folder.name}.old"), ignore_errors=True)


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # safetensors knows rows first only; the order in memory is put back by reading.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"items": [[_packed(key, tensors), _packed(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_packed(item, tensors) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a state can't hold a {type(value).__name__}")


def _unpacked(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "list" in value:
        return [_unpacked(item, tensors) for item in value["list"]]
    return {_unpacked(key, tensors): _unpacked(item, tensors) for key, item in value["items"]}
