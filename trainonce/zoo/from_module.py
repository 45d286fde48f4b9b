"""The user's own models: `module.path:callable`, imported from the current directory and called."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch import nn

from trainonce.errors import UnknownModelError
from trainonce.messages.plain_text import kind_and_reason
from trainonce.structure.channels import Example
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.names import LIBRARIES
from trainonce.zoo.sources import Build, Source, refuse_name


def build_model(source: str, example: Example | None, wanted: Build) -> Source:
    """The model that the callable returns, in eval mode, with the user's example."""
    path, _, name = source.partition(":")
    with _current_directory_first():
        found: Any = _import(path, name)
        for part in name.split("."):
            if not hasattr(found, part):
                raise refuse_name(source, (known for known in dir(found) if not known.startswith("_")))
            found = getattr(found, part)
        if not callable(found):
            raise UnknownModelError(
                f"{source} is a {type(found).__name__}, not a callable. Name a function or class that "
                "returns the model."
            )
        model = _call(source, found)
    if not isinstance(model, nn.Module):
        raise UnknownModelError(
            f"{source} returned a {type(model).__name__}. It must return an nn.Module when called without "
            "arguments."
        )
    if example is None and wanted.image_size is not None:
        example = draw_image(1, 3, wanted.image_size, wanted.image_size)
    if example is None:
        raise UnknownModelError(
            f"{source} needs an example input. Pass its shape, such as --input 1x3x224x224."
        )
    return Source(name=source, model=model.eval(), example=example)


@contextmanager
def _current_directory_first() -> Iterator[None]:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _import(path: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or path
        if path == missing or path.startswith(f"{missing}."):
            near = difflib.get_close_matches(path, LIBRARIES, n=1)
            advice = f" Did you mean {near[0]}:{name}?" if near else ""
            raise UnknownModelError(
                f"there is no module {missing!r}. Run from the folder that contains it, or install "
                f"it.{advice}"
            ) from None
        raise UnknownModelError(
            f"module {path!r} imports {missing!r}, which is not installed. Install it and try again."
        ) from None
    except (Exception, SystemExit) as error:
        raise UnknownModelError(
            f"module {path!r} can't be imported ({kind_and_reason(error)}). Fix it and try again."
        ) from error


def _call(source: str, builder: Any) -> Any:
    try:
        return builder()
    except (Exception, SystemExit) as error:
        raise UnknownModelError(
            f"{source}() fails ({kind_and_reason(error)}). It must return the model when called without "
            "arguments."
        ) from error
