"""Models of timm, by the names of `timm.list_models()`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import timm
from torch import nn

from trainonce.errors import UnknownModelError, WeightsError
from trainonce.messages.plain_text import kind_and_reason
from trainonce.storage.artifact.about import About
from trainonce.zoo.head import NewHead
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.sources import Build, Source, downloading, refuse_name

_LARGEST_SIZE = 256
_PLAIN_NAME = re.compile(r"[\w.-]+")


def model_names() -> list[str]:
    """The names of all models, with and without a tag of pretrained weights."""
    return [*timm.list_models(), *timm.list_pretrained()]


def build_model(name: str, wanted: Build) -> Source:
    """A timm model and an image of its own size, at most 256 pixels if it takes others."""
    source = f"timm:{name}"
    _check_name(name)
    try:
        with downloading(source):
            model = _create(name, wanted)
    except WeightsError:
        raise
    except Exception as error:
        raise UnknownModelError(f"{source} can't be built ({kind_and_reason(error)}).") from error
    made_for: Any = model.pretrained_cfg
    channels, height, width = made_for["input_size"]
    if wanted.image_size is not None:
        height = width = wanted.image_size
    elif not made_for.get("fixed_input_size", False):
        height, width = min(height, _LARGEST_SIZE), min(width, _LARGEST_SIZE)
    return Source(
        name=source,
        model=model.eval(),
        example=draw_image(1, channels, height, width),
        new_head=_new_head(made_for, wanted) if wanted.loads else None,
    )


def _new_head(made_for: Any, wanted: Build) -> NewHead | None:
    """The layer that timm re-initialized, because the pretrained one has another number of classes."""
    before, names = made_for.get("num_classes"), made_for.get("classifier")
    if wanted.num_classes in (None, before) or not before or not names:
        return None
    return NewHead((names,) if isinstance(names, str) else tuple(names), before, wanted.num_classes)


def rebuild_model(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The model again, with random weights."""
    _check_name(name)
    return _create(name, Build.of(arguments))


def origin_of(model: Any) -> About | None:
    """The name and number of classes of a model that timm has made."""
    name = (getattr(model, "pretrained_cfg", None) or {}).get("architecture")
    classes = getattr(model, "num_classes", None)
    if not isinstance(name, str) or not timm.is_model(name):
        return None
    return About(name=f"timm:{name}", arguments={"num_classes": classes} if type(classes) is int else {})


def _check_name(name: str) -> None:
    # Only timm's own names: `hf-hub:USER/NAME` and `local-dir:PATH` would load other people's files.
    if not _PLAIN_NAME.fullmatch(name) or not timm.is_model(name):
        raise refuse_name(f"timm:{name}", timm.list_models())


def _create(name: str, wanted: Build) -> Any:
    settings: dict[str, Any] = {} if wanted.num_classes is None else {"num_classes": wanted.num_classes}
    if wanted.image_size is not None:
        # Models with position embeddings take img_size; convolutional ones don't.
        try:
            return timm.create_model(name, pretrained=wanted.loads, img_size=wanted.image_size, **settings)
        except TypeError:
            pass
    return timm.create_model(name, pretrained=wanted.loads, **settings)
