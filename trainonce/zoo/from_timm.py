"""Models of timm: takes a name of `timm.list_models()`, gives the model and an image of the size it is made for."""

from __future__ import annotations

import re
from typing import Any

import timm

from trainonce.errors import UnknownModelError
from trainonce.messages.plain_text import kind_and_reason
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.sources import Build, Source, refuse_name

_LARGEST_SIZE = 256
_PLAIN_NAME = re.compile(r"[\w.-]+")


def model_names() -> list[str]:
    """Every model of this source; names with a tag of pretrained weights, too."""
    return [*timm.list_models(), *timm.list_pretrained()]


def build_model(name: str, wanted: Build) -> Source:
    """A model of timm; images above 256 pixels are made smaller where the model allows it, unless a size is wanted."""
    source = f"timm:{name}"
    # Only names of timm itself: `hf-hub:USER/NAME` and `local-dir:PATH` would load what other people wrote.
    if not _PLAIN_NAME.fullmatch(name) or not timm.is_model(name):
        raise refuse_name(source, timm.list_models())
    settings: dict[str, Any] = {} if wanted.num_classes is None else {"num_classes": wanted.num_classes}
    try:
        model = _create(name, settings, wanted)
    except Exception as error:
        raise UnknownModelError(f"{source} can't be built like this ({kind_and_reason(error)}).") from error
    made_for: Any = model.pretrained_cfg
    colours, height, width = made_for["input_size"]
    if wanted.image_size is not None:
        height = width = wanted.image_size
    elif not made_for.get("fixed_input_size", False):
        height, width = min(height, _LARGEST_SIZE), min(width, _LARGEST_SIZE)
    return Source(name=source, model=model.eval(), example=draw_image(1, colours, height, width))


def _create(name: str, settings: dict[str, Any], wanted: Build) -> Any:
    if wanted.image_size is not None:
        # Models with positions take the size of the image; convolutional ones know no such setting.
        try:
            return timm.create_model(
                name, pretrained=wanted.pretrained, img_size=wanted.image_size, **settings
            )
        except TypeError:
            pass
    return timm.create_model(name, pretrained=wanted.pretrained, **settings)
