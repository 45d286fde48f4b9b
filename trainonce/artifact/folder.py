"""A saved model as a folder: `plan.json`, `model.safetensors`, and `SHA256SUMS` over both.

Takes a model to a folder, completely or not at all, and a folder onto a model, or leaves the model alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from trainonce.artifact.manifest import BadArtifact, Manifest, kind_of, named_tensors, one_line
from trainonce.artifact.matching import check_receivers, cut_to_fit
from trainonce.sealing import SUMS_FILE, digest, flush_folder, seal, sum_lines

PLAN_FILE = "plan.json"
WEIGHTS_FILE = "model.safetensors"
MAX_PLAN_BYTES = 256 * 2**20

Model = TypeVar("Model", bound=nn.Module)


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write the model's plans and weights to a new folder, completely or not at all.

    >>> trainonce.save(small, "small")
    >>> small = trainonce.load("small", into=build_model())
    """
    target = Path(path)
    if os.path.lexists(target):
        raise BadArtifact(f"{target} exists already. Remove it, or choose another path.")
    manifest = Manifest.of(model)
    weights = _weights_to_store(model, manifest)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        draft.mkdir()
        _write_files(draft, manifest, weights)
        draft.rename(target)
        flush_folder(target.parent)
    except (OSError, SafetensorError) as error:
        raise BadArtifact(f"can't write {target} ({one_line(error)}). Make room there and allow writing, or choose another path.") from None
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise BadArtifact(f"safetensors can't hold this model's tensors ({one_line(error)}). Make them plain dense ones first.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load(path: str | os.PathLike[str], *, into: Model) -> Model:
    """The model `into` with the saved cuts and weights, in place; unchanged if anything is wrong with the folder.

    `into` is what the user's own code builds: dense, cut by the first of the saved plans, or as small as the saved model.
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    check_receivers(manifest, into)
    weights = _read_weights(folder / WEIGHTS_FILE, manifest)
    cut_to_fit(manifest, into)
    with torch.no_grad():
        for name, tensor in named_tensors(into).items():
            if name in manifest.tensors:
                _write_tensor(tensor, weights[manifest.tied.get(name, name)])
    return into


def _weights_to_store(model: nn.Module, manifest: Manifest) -> dict[str, Tensor]:
    tensors = named_tensors(model)
    weights: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name in manifest.tensors:
        if name in manifest.tied:
            continue
        value = tensors[name].detach().contiguous()
        storage = value.untyped_storage().data_ptr()
        # safetensors refuses two tensors that look at the same memory.
        weights[name] = value.clone() if storage in storages else value
        storages.add(storage)
    return weights


def _write_files(folder: Path, manifest: Manifest, weights: dict[str, Tensor]) -> None:
    plan_file, weights_file = folder / PLAN_FILE, folder / WEIGHTS_FILE
    plan_file.write_text(manifest.to_json(), encoding="utf-8")
    save_file(weights, weights_file)
    # safetensors makes files that only their owner may read.
    shutil.copymode(plan_file, weights_file)
    seal(folder, (PLAN_FILE, WEIGHTS_FILE))


def _read_manifest(folder: Path) -> Manifest:
    for name in (SUMS_FILE, PLAN_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise BadArtifact(f"there is no {name} in {folder}. Give the folder that trainonce.save wrote, or save the model again.")
    try:
        if (folder / PLAN_FILE).stat().st_size > MAX_PLAN_BYTES:
            raise BadArtifact(f"{folder / PLAN_FILE} is larger than {MAX_PLAN_BYTES} bytes, which no plan is. Save the model again.")
        with (folder / SUMS_FILE).open("rb") as stream:
            found = stream.read(4096)
        text = (folder / PLAN_FILE).read_bytes()
        digests = {PLAN_FILE: hashlib.sha256(text).hexdigest(), WEIGHTS_FILE: digest(folder / WEIGHTS_FILE)}
    except OSError as error:
        raise BadArtifact(f"can't read {folder} ({one_line(error)}). Copy it again, or save the model again.") from None
    lines = sum_lines(digests)
    if found != b"".join(lines):
        damaged = next((name for name, line in zip(digests, lines, strict=True) if line not in found), SUMS_FILE)
        raise BadArtifact(
            f"{damaged} in {folder} was cut short or changed: the sha256 differs. Copy the folder again, or save the model again."
        )
    return Manifest.from_json(text)


def _read_weights(file: Path, manifest: Manifest) -> dict[str, Tensor]:
    wanted = set(manifest.tensors) - set(manifest.tied)
    try:
        with safe_open(file, framework="pt") as stream:
            # Shapes first: what is read can't take more memory than the plan says.
            found = {name: tuple(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118
            if found != {name: manifest.tensors[name].shape for name in wanted}:
                raise BadArtifact(f"{file.name} does not hold the tensors that {PLAN_FILE} names. Save the model again.")
            weights = {name: stream.get_tensor(name) for name in wanted}
    except (OSError, SafetensorError) as error:
        raise BadArtifact(f"{file.name} is damaged ({one_line(error)}). Save the model again.") from None
    for name, tensor in weights.items():
        if kind_of(tensor) != manifest.tensors[name]:
            raise BadArtifact(
                f"{name} is {tensor.dtype} in {file.name}, {manifest.tensors[name].dtype} in {PLAN_FILE}. Save the model again."
            )
    return weights


def _write_tensor(tensor: Tensor, value: Tensor) -> None:
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        # An expanded tensor shows one number in many places and can't be written to.
        tensor.data = value.to(tensor.device)
    else:
        tensor.copy_(value)
