"""Files of weights, read as plain tensors: safetensors, or what torch.save wrote. No code in them is run."""

from __future__ import annotations

import argparse
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from trainonce.errors import WeightsError
from trainonce.messages.plain_text import in_one_line, kind_and_reason, shown_path
from trainonce.storage.atomic import digest

NESTED = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params")
"""Where training scripts put the model's weights, in the order in which they are looked for."""

AVERAGED = ("ema", "model_ema", "state_dict_ema", "ema_state_dict", "ema_model", "params_ema")
"""Where they put an average of the weights, which is taken if there is nothing else."""

MOST_COPIES, MOST_MORE = 64, 2**28
"""Of a model in one file: optimizers and averages have some. And bytes of a head, or of another model."""

MOST_NESTING = 3
MOST_INFLATION = 4
"""Torch stores tensors as they are; a file that unpacks to much more is not a checkpoint."""

HARMLESS = (argparse.Namespace,)
"""Classes that hold plain values and run nothing: timm and others save their arguments beside the weights."""

_ASKED_FOR = re.compile(r"GLOBAL ([\w.]+)")
_PLAIN = "Save model.state_dict() with torch.save or safetensors, and pass that file."


@dataclass(frozen=True, slots=True, eq=False)
class WeightFile:
    """The tensors of a file by name."""

    path: Path
    sha256: str
    tensors: dict[str, Tensor]
    average: str = ""
    """The entry of the file that these are in, if it is an average."""


def read_weights(path: Path, *, model_bytes: int) -> WeightFile:
    """The weights in a file that anyone may have written; WeightsError if it has none, or asks for code.

    It is not read if it is larger than checkpoints of a model of `model_bytes` are.
    """
    if path.is_dir():
        raise WeightsError(f"{shown_path(path)} is a folder. Pass a file in it, such as model.safetensors.")
    if not path.is_file():
        raise WeightsError(f"there is no file {shown_path(path)}. Pass the path of a file of weights.")
    try:
        _check_size(path, MOST_COPIES * model_bytes + MOST_MORE)
        sha256 = digest(path)
        found = _read_safetensors(path) if _is_safetensors(path) else _read_torch(path)
    except OSError as error:
        raise WeightsError(
            f"can't read {shown_path(path)} ({error.strerror or kind_and_reason(error)}). Check the file."
        ) from None
    if tensors := _find_tensors(found):
        return WeightFile(path, sha256, tensors)
    for entry in AVERAGED if isinstance(found, Mapping) else ():
        if tensors := _find_tensors(found.get(entry), 1):
            return WeightFile(path, sha256, tensors, entry)
    raise WeightsError(f"{shown_path(path)} holds no weights{_where_not(found)}. {_PLAIN}")


def _check_size(path: Path, most: int) -> None:
    if (size := path.stat().st_size) > most:
        raise WeightsError(
            f"{shown_path(path)} has {size:,} bytes, and a checkpoint of this model at most {most:,}. "
            f"{_PLAIN}"
        )


def _is_safetensors(path: Path) -> bool:
    """By content: a file begins with the length of its header, which is JSON."""
    with path.open("rb") as stream:
        start = stream.read(9)
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, RuntimeError, KeyError) as error:
        raise WeightsError(
            f"{shown_path(path)} is damaged ({kind_and_reason(error)}). Copy it again."
        ) from None


def _read_torch(path: Path) -> Any:
    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        _check_inflation(path)
    else:
        _check_whole(path)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(list(HARMLESS)):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except OSError:
        raise
    except Exception as error:
        # The reader meets whatever bytes there are, so it may raise anything.
        if asked := _ASKED_FOR.search(str(error)):
            raise WeightsError(
                f"{shown_path(path)} asks to run code ({in_one_line(asked.group(1), 80)}), and only plain "
                f"weights are read. {_PLAIN}"
            ) from None
        if "TorchScript" in str(error):
            raise WeightsError(
                f"{shown_path(path)} is a TorchScript program, not weights. {_PLAIN}"
            ) from None
        raise WeightsError(
            f"{shown_path(path)} is not a file of weights that can be read ({type(error).__name__}). {_PLAIN}"
        ) from None


def _check_whole(path: Path) -> None:
    """Raise WeightsError for an empty file, or the beginning of what torch.save wrote."""
    # A zip file ends in its table of contents.
    with path.open("rb") as stream:
        start = stream.read(4)
    if start in (b"", b"PK\x03\x04"):
        what = "is only the beginning of a file" if start else "is empty"
        raise WeightsError(f"{shown_path(path)} {what}. Copy it again.")


def _check_inflation(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, RuntimeError) as error:
        raise WeightsError(
            f"{shown_path(path)} is damaged ({kind_and_reason(error)}). Copy it again."
        ) from None
    if total > MOST_INFLATION * path.stat().st_size + 2**20:
        raise WeightsError(
            f"{shown_path(path)} would unpack to {total:,} bytes, which no checkpoint does. {_PLAIN}"
        )


def _where_not(found: Any) -> str:
    """What there is instead, where a checkpoint calls its weights by another name."""
    if not isinstance(found, Mapping) or not found:
        return ""
    names = in_one_line(", ".join(map(str, found)), 100)
    return f" under {', '.join((*NESTED, *AVERAGED))}, but {names}"


def _find_tensors(found: Any, depth: int = 0) -> dict[str, Tensor]:
    """The tensors of a state dict, also of one inside a checkpoint; none if there is no state dict."""
    if not isinstance(found, Mapping) or depth > MOST_NESTING:
        return {}
    for key in NESTED:
        if inside := _find_tensors(found.get(key), depth + 1):
            return inside
    return {
        name: tensor
        for name, tensor in found.items()
        if isinstance(name, str) and isinstance(tensor, Tensor) and not tensor.is_sparse
    }
