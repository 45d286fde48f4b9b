"""A saved model as a folder: `plan.json`, `model.safetensors`, and `SHA256SUMS` over both.

Saving is atomic; loading changes the model completely or not at all.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from trainonce.errors import ArtifactError, ModelMismatchError
from trainonce.execution.restoring import is_expanded
from trainonce.messages.plain_text import shorten, shown, shown_path
from trainonce.storage.artifact.about import About, about_of, note_about
from trainonce.storage.artifact.bounds import most_plan_bytes
from trainonce.storage.artifact.manifest import Manifest, named_tensors
from trainonce.storage.artifact.matching import check_receivers, cut_to_fit
from trainonce.storage.artifact.reading import PLAN_FILE, WEIGHTS_FILE, read_manifest, read_weights
from trainonce.storage.atomic import draft_of, flush_folder, seal
from trainonce.structure.channels import Example

Model = TypeVar("Model", bound=nn.Module)


def save(model: nn.Module, path: str | os.PathLike[str], *, about: About | None = None) -> None:
    """Save the model's cuts and weights to a new folder, atomically, with what is known `about` it.

    None: what the model carries.
    """
    check_arguments(model, path, "model")
    target = Path(path)
    if os.path.lexists(target):
        raise ArtifactError(f"{shown_path(target)} already exists. Remove it, or choose another path.")
    about = about_of(model) if about is None else about
    about.to_json()
    manifest = replace(Manifest.of(model), about=about)
    if len(manifest.to_json()) > most_plan_bytes(model, named_tensors(model)):
        # More cuts than `load` accepts for this model.
        manifest = replace(Manifest.of(model, is_merged=True), about=about)
    weights = _weights_to_store(model, manifest)
    draft = draft_of(target)
    try:
        draft.mkdir()
        _write_files(draft, manifest, weights)
        draft.rename(target)
        flush_folder(target.parent)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(
            f"can't write {shown_path(target)} ({shown(error, most=300)}). Free disk space, check "
            "permissions, or choose another path."
        ) from None
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"safetensors can't store this model's tensors ({shown(error)}). Convert them to dense tensors."
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def load(path: str | os.PathLike[str], *, into: Model, example: Example | None = None) -> Model:
    """Load saved cuts and weights into the model `into`, in place; on any error it is unchanged.

    The model may be dense, cut by the first of the saved plans, or already as small as the saved one.
    """
    check_arguments(into, path, "into")
    folder = Path(path)
    manifest = read_manifest(folder, into)
    check_receivers(manifest, into)
    weights = read_weights(folder, manifest, into)
    with torch.inference_mode(_is_for_inference(into)), torch.no_grad():
        places = {name: tensor.data_ptr() for name, tensor in named_tensors(into).items()}
        restore = cut_to_fit(manifest, into, example=example)
        copies: list[tuple[Tensor, Tensor]] = []
        try:
            for name, tensor in named_tensors(into).items():
                if name in manifest.tensors:
                    # Cut tensors have new storage; the old one still holds the old values.
                    if tensor.data_ptr() == places.get(name) and not is_expanded(tensor):
                        copies.append((tensor, tensor.clone()))
                    _write_tensor(tensor, weights[manifest.tied.get(name, name)])
        except BaseException:
            for tensor, before in reversed(copies):
                tensor.copy_(before)
            restore()
            raise
    note_about(into, manifest.about)
    return into


def check_arguments(model: object, path: object, name: str) -> None:
    """Raise ArtifactError if one of them is of another kind."""
    if not isinstance(path, str | os.PathLike):
        raise ArtifactError(f"path must be the path of a folder, got {shorten(path)}.")
    if not isinstance(model, nn.Module):
        raise ArtifactError(
            f"{name} must be an nn.Module, got {type(model).__name__}. Build the model first."
        )


def _is_for_inference(model: nn.Module) -> bool:
    """Whether the model was built in inference mode, and so must be changed in it."""
    found = {name: tensor.is_inference() for name, tensor in named_tensors(model).items()}
    if len(set(found.values())) > 1:
        raise ModelMismatchError(
            f"{next(name for name in found if found[name])} was created in inference mode, other tensors "
            "were not. Build the whole model in one mode."
        )
    return any(found.values())


def _weights_to_store(model: nn.Module, manifest: Manifest) -> dict[str, Tensor]:
    tensors = named_tensors(model)
    weights: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name in manifest.tensors:
        if name in manifest.tied:
            continue
        value = tensors[name].detach().contiguous()
        storage = value.untyped_storage().data_ptr()
        # safetensors rejects tensors that share storage.
        weights[name] = value.clone() if storage in storages else value
        storages.add(storage)
    return weights


def _write_files(folder: Path, manifest: Manifest, weights: dict[str, Tensor]) -> None:
    plan_file, weights_file = folder / PLAN_FILE, folder / WEIGHTS_FILE
    plan_file.write_text(manifest.to_json(), encoding="utf-8")
    save_file(weights, weights_file)
    # safetensors creates files that only their owner can read.
    shutil.copymode(plan_file, weights_file)
    seal(folder, (PLAN_FILE, WEIGHTS_FILE))


def _write_tensor(tensor: Tensor, value: Tensor) -> None:
    if is_expanded(tensor):
        tensor.data = value.to(tensor.device, copy=True)
    else:
        tensor.copy_(value)
