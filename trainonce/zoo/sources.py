"""Models by source: `cifar:NAME`, `torchvision:NAME`, `timm:NAME`, `transformers:CLASS` or your own."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import PurePath
from typing import Any

from torch import nn

from trainonce.errors import MissingPackageError, UnknownModelError, WeightsError
from trainonce.messages.plain_text import in_one_line, kind_and_reason
from trainonce.messages.suggestions import did_you_mean
from trainonce.storage.artifact.about import About, note_about
from trainonce.structure.channels import Example
from trainonce.zoo.head import NewHead
from trainonce.zoo.inputs import parse_inputs
from trainonce.zoo.names import LIBRARIES, names_code, on_hub


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A new model in eval mode, and an example input."""

    name: str
    """As the user wrote it, such as `timm:convnext_tiny`."""

    model: nn.Module
    example: Example
    new_head: NewHead | None = None
    """The layer that is not pretrained, because another number of classes was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """Options for building a classifier; None is the library's default."""

    num_classes: int | None = None
    image_size: int | None = None
    pretrained: bool = False
    is_empty: bool = False
    """Build what `pretrained` builds, but without its weights, which others will replace."""

    @property
    def loads(self) -> bool:
        """Whether pretrained weights are needed."""
        return self.pretrained and not self.is_empty

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Build:
        """The options in a model's arguments, without its weights; UnknownModelError for any others."""
        if unknown := set(arguments) - {"num_classes", "image_size", "pretrained"}:
            raise UnknownModelError(
                f"a model is built with num_classes and image_size, not with {in_one_line(min(unknown), 60)}."
            )
        return cls(**arguments, is_empty=True)

    def as_arguments(self) -> dict[str, int]:
        """The options that make another model, as plain data; some differ if they had pretrained weights."""
        found = {"num_classes": self.num_classes, "image_size": self.image_size}
        if self.pretrained:
            found["pretrained"] = True
        return {name: value for name, value in found.items() if value is not None}


AS_IT_COMES = Build()


def build(source: str, inputs: Sequence[str] = (), *, wanted: Build = AS_IT_COMES) -> Source:
    """The model that `source` names; `inputs` such as `1x3x224x224` replace its own example.

    build("torchvision:resnet50")
    build("my_package.models:build", ["1x3x224x224", "1x16:int"])
    """
    library, name = _split(source)
    example = parse_inputs(inputs) if inputs else None
    if names_code(source):
        from_module = importlib.import_module("trainonce.zoo.from_module")
        return from_module.build_model(source, example, wanted)
    check_installed(library, source)
    home = "hub" if on_hub(source) else library
    found = importlib.import_module(f"trainonce.zoo.from_{home}").build_model(name, wanted)
    if library != "transformers":
        # Those carry their whole config.
        note_about(found.model, About(name=source, arguments=wanted.as_arguments()))
    return found if example is None else replace(found, example=example)


def check_name(source: str) -> None:
    """Raise UnknownModelError or MissingPackageError if there is no such model; nothing is built."""
    library, name = _split(source)
    if names_code(source):
        return
    check_installed(library, source)
    known = importlib.import_module(f"trainonce.zoo.from_{library}").model_names()
    if name not in known and not on_hub(source):
        raise refuse_name(source, known)


def check_installed(library: str, source: str) -> None:
    """Raise MissingPackageError if the library of a model is not there."""
    if library != "cifar" and importlib.util.find_spec(library) is None:
        raise MissingPackageError(
            f"{source} needs the package {library}. Install it with: pip install {library}"
        )


def _split(source: str) -> tuple[str, str]:
    """The library or module, and the name in it; UnknownModelError if it is neither."""
    library, colon, name = source.partition(":")
    if library.endswith(".py") or "/" in library or os.sep in library:
        raise UnknownModelError(
            f"{in_one_line(source, 120)} names a file, not a module. {_as_module(library, name)}"
        )
    if not (library and colon and name):
        forms = ", ".join(f"{known}:{'CLASS' if known == 'transformers' else 'NAME'}" for known in LIBRARIES)
        raise UnknownModelError(
            f"{in_one_line(source, 120)!r} is not a model. Pass {forms} or module.path:callable."
        )
    return library, name


def _as_module(file: str, name: str) -> str:
    path = PurePath(os.path.relpath(file))
    module = ".".join(path.with_suffix("").parts)
    if ".." in path.parts or not all(part.isidentifier() for part in module.split(".")):
        return f"Run from the folder that contains it, and pass {path.stem}:{name or 'FUNCTION'}."
    return f"Did you mean {module}:{name or 'FUNCTION'}?"


def refuse_name(source: str, known: Iterable[str]) -> UnknownModelError:
    """The error for an unknown name, with the closest of the `known` ones."""
    library, _, name = source.partition(":")
    advice = did_you_mean(name, known, most=3) or "No model has a similar name."
    return UnknownModelError(f"{in_one_line(library, 60)} has no model {in_one_line(name, 60)!r}. {advice}")


@contextmanager
def downloading(source: str) -> Iterator[None]:
    """Turn a download that fails into one line; its library would tell of every attempt."""
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    except (OSError, HTTPException) as error:
        raise WeightsError(
            f"the pretrained weights of {in_one_line(source, 120)} can't be downloaded "
            f"({kind_and_reason(error)}). Connect to the network, or pass a file: --weights FILE."
        ) from None
    finally:
        log.setLevel(level)
