"""Models of timm, by the names of `timm.list_models()`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import timm
from timm.layers.drop import DropPath
from torch import nn

from trainonce.errors import UnknownModelError, WeightsError
from trainonce.messages.plain_text import kind_and_reason, shown
from trainonce.storage.artifact.about import About
from trainonce.zoo.head import NewHead
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.sources import Build, Source, downloading, refuse_name

_LARGEST_SIZE = 256
_MOST_CHANNELS = 1024
_PLAIN_NAME = re.compile(r"[\w.-]+")

NO_OPTIONS: Mapping[str, Any] = {}
OPTIONS: dict[str, Callable[[Any], bool]] = {
    "in_chans": lambda value: type(value) is int and 1 <= value <= _MOST_CHANNELS,
    "drop_rate": lambda value: type(value) in (int, float) and 0 <= value < 1,
    "drop_path_rate": lambda value: type(value) in (int, float) and 0 <= value < 1,
    "output_stride": lambda value: value in (8, 16, 32),
    "global_pool": lambda value: isinstance(value, str) and bool(re.fullmatch(r"[a-z]{0,20}", value)),
}
"""What else a folder may say about a model, and which values: none that loads a file or fills the memory."""


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
    options = {key: value for key, value in arguments.items() if key in OPTIONS}
    for key, value in options.items():
        if not OPTIONS[key](value):
            raise UnknownModelError(f"{key} of timm:{name} can't be {shown(value)}.")
    others = {key: value for key, value in arguments.items() if key not in OPTIONS}
    return _create(name, Build.of(others), options)


def origins_of(model: Any) -> Iterator[About]:
    """The name and possible arguments of a model that timm has made, the likeliest first."""
    made_for = getattr(model, "pretrained_cfg", None) or {}
    name, classes = made_for.get("architecture"), getattr(model, "num_classes", None)
    if not isinstance(name, str) or not timm.is_model(name):
        return
    told = {"num_classes": classes} if type(classes) is int else {}
    yield About(name=f"timm:{name}", arguments=told)
    told |= {key: value for key, value in _told_options(model, made_for).items() if value}
    yield About(name=f"timm:{name}", arguments=told)
    pools = (module.global_pool for module in model.modules() if hasattr(module, "global_pool"))
    pool = next((getattr(pool, "pool_type", pool) for pool in pools), None)
    if isinstance(pool, str):
        yield About(name=f"timm:{name}", arguments=told | {"global_pool": pool})


def _told_options(model: nn.Module, made_for: Mapping[str, Any]) -> dict[str, Any]:
    modules = dict(model.named_modules())
    first = made_for.get("first_conv")
    conv = modules.get(first if isinstance(first, str) else "")
    size = getattr(modules.get("patch_embed"), "img_size", None)
    # The rate grows from layer to layer up to the one that was asked for.
    rates = [getattr(module, "drop_prob", 0) for module in modules.values() if type(module) is DropPath]
    return {
        "in_chans": getattr(conv, "in_channels", None),
        "image_size": size[0] if isinstance(size, tuple) and len({*size}) == 1 else None,
        "drop_rate": getattr(model, "drop_rate", None),
        "drop_path_rate": round(max(rates, default=0), 6),
    }


def _check_name(name: str) -> None:
    # Only timm's own names: `hf-hub:USER/NAME` and `local-dir:PATH` would load other people's files.
    if not _PLAIN_NAME.fullmatch(name) or not timm.is_model(name):
        raise refuse_name(f"timm:{name}", timm.list_models())


def _create(name: str, wanted: Build, options: Mapping[str, Any] = NO_OPTIONS) -> Any:
    settings = dict(options)
    if wanted.num_classes is not None:
        settings["num_classes"] = wanted.num_classes
    if wanted.image_size is not None:
        # Models with position embeddings take img_size; convolutional ones don't.
        try:
            return timm.create_model(name, pretrained=wanted.loads, img_size=wanted.image_size, **settings)
        except TypeError:
            pass
    return timm.create_model(name, pretrained=wanted.loads, **settings)
