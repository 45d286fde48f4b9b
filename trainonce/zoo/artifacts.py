"""`save` and `load` of models that have a name: the folder says how its model is built."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import nn

from trainonce.errors import ArtifactError, TrainonceError
from trainonce.messages.plain_text import reason_of, shorten, shown, shown_path
from trainonce.storage.artifact import folder
from trainonce.storage.artifact.about import About, Preprocessing, about_of, note_about
from trainonce.storage.artifact.manifest import Manifest
from trainonce.storage.artifact.reading import read_manifest
from trainonce.structure.channels import Example
from trainonce.zoo.names import names_code
from trainonce.zoo.origins import difference_to, rebuild, told_origins

Model = TypeVar("Model", bound=nn.Module)


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    preprocessing: Preprocessing | None = None,
) -> None:
    """Save the model's cuts and weights to a new folder, atomically, with what is known about it.

    >>> trainonce.save(small, "small")
    >>> small = trainonce.load("small", into=build_model())

    Args:
        model: The model, cut or not.
        path: The folder, which must not exist.
        name: How the dense model is built, if a library builds it: `timm:resnet18`. `trainonce.load(path)`
            then needs no `into`. Models from timm and transformers are recognized.
        arguments: Arguments it is built with, such as `{"num_classes": 10}`.
        classes: The names of its outputs, in their order.
        preprocessing: How an image becomes its input.

    Raises:
        ArtifactError: The folder exists or can't be written; nothing is left behind.
    """
    folder.check_arguments(model, path, "model")
    given = _given(name, arguments, classes, preprocessing)
    about = given.added_to(about_of(model))
    if name is not None:
        _check_name(model, about)
    elif about.name is None or not names_code(about.name):
        about = _with_true_name(model, about)
    folder.save(model, path, about=about)


@overload
def load(path: str | os.PathLike[str], *, into: Model, example: Example | None = None) -> Model: ...
@overload
def load(path: str | os.PathLike[str], *, into: None = None, example: Example | None = None) -> nn.Module: ...
def load(
    path: str | os.PathLike[str], *, into: nn.Module | None = None, example: Example | None = None
) -> nn.Module:
    """The saved model: `into` with its cuts and weights, or built from the name in the folder.

    If a cut changes sizes that only the model's own code reads, such as `num_heads`, the model is traced once
    to verify them.

    Args:
        path: The folder that `save` wrote.
        into: What your own code builds: dense, cut by the first of the saved plans, or already as small as
            the saved model; on any error it is unchanged. None: the model of torchvision, timm, transformers
            or `cifar:` that the folder names, newly built and in eval mode.
        example: What to trace the model on; None: dummy data shaped like the example that it was cut with.

    Returns:
        The model `into`, or the new one.

    Raises:
        ArtifactError: The folder is missing, incomplete, damaged, or newer than this library.
        ModelMismatchError: The folder is sound, but was saved from another model.
    """
    if into is not None:
        return folder.load(path, into=into, example=example)
    if not isinstance(path, str | os.PathLike):
        raise ArtifactError(f"path must be the path of a folder, got {shorten(path)}.")
    place = Path(path)
    manifest = read_manifest(place, None)
    about = manifest.about
    if about.name is None:
        raise ArtifactError(
            f"{shown_path(place)} doesn't say how its {shown(manifest.model)} is built. Pass "
            "trainonce.load(path, into=model) with a newly built one."
        )
    if names_code(about.name):
        raise ArtifactError(
            f"the model in {shown_path(place)} is built by {shown(about.name)}, which is code. Build it, and "
            "pass trainonce.load(path, into=model)."
        )
    model = _rebuilt(about).to(_dtype_of(manifest))
    return folder.load(path, into=model, example=example).eval()


def note_name(model: nn.Module) -> None:
    """Let a model of timm or transformers carry the name and the arguments that it tells."""
    if about_of(model).name is None:
        note_about(model, _with_true_name(model, about_of(model)))


def _rebuilt(about: About) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return rebuild(about)


def _given(
    name: str | None,
    arguments: Mapping[str, Any] | None,
    classes: Sequence[str] | None,
    preprocessing: Preprocessing | None,
) -> About:
    if arguments and name is None:
        raise ArtifactError("arguments= needs name=. Pass both, such as name='timm:resnet18'.")
    if preprocessing is not None and not isinstance(preprocessing, Preprocessing):
        raise ArtifactError(
            f"preprocessing must be a trainonce.Preprocessing, got {type(preprocessing).__name__}."
        )
    if isinstance(classes, str):
        raise ArtifactError("classes must be a list of names, got a string.")
    try:
        return About(
            name=name,
            arguments=arguments or {},
            classes=tuple(classes or ()),
            preprocessing=preprocessing,
        )
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"this can't be saved with a model: {shown(error, most=300)}.") from None


def _check_name(model: nn.Module, about: About) -> None:
    """Raise ArtifactError if the name that was given builds another model."""
    if names_code(str(about.name)):
        return
    try:
        different = difference_to(model, about)
    except TrainonceError as error:
        different = reason_of(error, 300)
    if different is not None:
        raise ArtifactError(
            f"{shown(about.name)} with these arguments is not the dense form of this model ({different}). "
            "Pass the name and the arguments that it was built with, or no name."
        )


def _with_true_name(model: nn.Module, about: About) -> About:
    """With the name that the model carries or tells; without one if it builds another model."""
    nameless = replace(about, name=None, arguments={})
    try:
        origins = [about] if about.name is not None else list(told_origins(model))
    except Exception:
        # Whatever a library's model says in an unusual way: it has no name then.
        return nameless
    for origin in origins:
        with suppress(Exception):
            # The library may refuse arguments that the model only seems to have.
            if difference_to(model, origin) is None:
                return replace(nameless, name=origin.name, arguments=origin.arguments)
    return nameless


def _dtype_of(manifest: Manifest) -> torch.dtype:
    """The one precision of the saved weights; the default if there are several."""
    found = {kind.dtype for name, kind in manifest.tensors.items()}
    found = {getattr(torch, name, None) for name in found}
    floating = [dtype for dtype in found if isinstance(dtype, torch.dtype) and dtype.is_floating_point]
    return floating[0] if len(floating) == 1 else torch.get_default_dtype()
