"""Reads the files of a saved model, and trusts none of them before it is checked.

Every size is bounded before a byte is read, by what the model to load into can need.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from trainonce.errors import ArtifactError
from trainonce.messages.plain_text import shown, shown_path
from trainonce.storage.artifact.bounds import (
    MOST_UNSEEN_BYTES,
    most_plan_bytes,
    most_weights_bytes,
    takes_much_memory,
)
from trainonce.storage.artifact.manifest import Manifest, kind_of, named_tensors
from trainonce.storage.atomic import SUMS_FILE, digest, read_sums, sum_lines

PLAN_FILE = "plan.json"
WEIGHTS_FILE = "model.safetensors"


def read_manifest(folder: Path, model: nn.Module | None) -> Manifest:
    """The manifest, checked against its sum; ArtifactError if it is larger than `model` could need.

    Without a model, if it is larger than the largest model could need.
    """
    for name in (SUMS_FILE, PLAN_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ArtifactError(
                f"there is no {name} in {shown_path(folder)}. Pass a folder written by trainonce.save, or "
                "save the model again."
            )
    try:
        most = MOST_UNSEEN_BYTES if model is None else most_plan_bytes(model, named_tensors(model))
        _refuse_larger(folder / PLAN_FILE, most)
        sums, text = read_sums(folder), (folder / PLAN_FILE).read_bytes()
    except OSError as error:
        raise _unreadable(folder, error) from None
    (line,) = sum_lines({PLAN_FILE: hashlib.sha256(text).hexdigest()})
    if not sums.startswith(line):
        raise _damaged(folder, PLAN_FILE if line not in sums else SUMS_FILE)
    if takes_much_memory(text):
        raise ArtifactError(
            f"{shown_path(folder / PLAN_FILE)} is not a plan: parsing it would take too much memory. Save "
            "the model again."
        )
    return Manifest.from_json(text)


def read_weights(folder: Path, manifest: Manifest, model: nn.Module) -> dict[str, Tensor]:
    """The tensors named in the manifest, all of which the model has; the folder must match its sums."""
    file, receivers = folder / WEIGHTS_FILE, named_tensors(model)
    wanted = [name for name in manifest.tensors if name not in manifest.tied]
    most = most_weights_bytes({name: receivers[name].nbytes for name in wanted})
    try:
        _refuse_larger(file, most)
        with file.open("rb") as stream:
            if int.from_bytes(stream.read(8), "little") > most:
                raise _damaged(folder, WEIGHTS_FILE)
        digests = {PLAN_FILE: digest(folder / PLAN_FILE), WEIGHTS_FILE: digest(file)}
        if read_sums(folder) != b"".join(lines := sum_lines(digests)):
            raise _damaged(folder, WEIGHTS_FILE if lines[1] not in read_sums(folder) else SUMS_FILE)
        weights = _read_tensors(file, manifest, set(wanted))
    except SafetensorError as error:
        raise ArtifactError(f"{file.name} is corrupt ({shown(error)}). Save the model again.") from None
    except OSError as error:
        raise _unreadable(folder, error) from None
    for name, tensor in weights.items():
        if kind_of(tensor) != manifest.tensors[name]:
            raise ArtifactError(
                f"{name} is {tensor.dtype} in {file.name}, {manifest.tensors[name].dtype} in {PLAN_FILE}. "
                "Save the model again."
            )
    return weights


def _read_tensors(file: Path, manifest: Manifest, wanted: set[str]) -> dict[str, Tensor]:
    with safe_open(file, framework="pt") as stream:
        # Shapes first: reading then takes no more memory than the plan says.
        found = {name: tuple(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118
        if found != {name: manifest.tensors[name].shape for name in wanted}:
            raise ArtifactError(
                f"{file.name} doesn't contain the tensors named in {PLAN_FILE}. Save the model again."
            )
        return {name: stream.get_tensor(name) for name in wanted}


def _refuse_larger(file: Path, most: int) -> None:
    if (size := file.stat().st_size) > most:
        raise ArtifactError(
            f"{shown_path(file)} has {size} bytes, but this model needs at most {most}. "
            f"Build the model that was saved, or save it again."
        )


def _damaged(folder: Path, name: str) -> ArtifactError:
    return ArtifactError(
        f"{name} in {shown_path(folder)} is truncated or modified (sha256 mismatch). Copy the folder again, "
        "or save the model again."
    )


def _unreadable(folder: Path, error: OSError) -> ArtifactError:
    return ArtifactError(
        f"can't read {shown_path(folder)} ({shown(error)}). Copy it again, or save the model again."
    )
