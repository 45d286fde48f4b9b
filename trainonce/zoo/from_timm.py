"""Models of timm: takes a name of `timm.list_models()`, gives the model and an image of the size it is made for."""

from __future__ import annotations

from typing import Any

import timm

from trainonce.zoo.inputs import draw_image
from trainonce.zoo.sources import Source, refuse_name

_LARGEST_SIZE = 256


def build_model(name: str) -> Source:
    """A model of timm with random weights; images above 256 pixels are made smaller where the model allows it."""
    source = f"timm:{name}"
    if not timm.is_model(name):
        raise refuse_name(source, timm.list_models())
    model = timm.create_model(name, pretrained=False).eval()
    settings: Any = model.pretrained_cfg
    colours, height, width = settings["input_size"]
    if not settings.get("fixed_input_size", False):
        height, width = min(height, _LARGEST_SIZE), min(width, _LARGEST_SIZE)
    return Source(name=source, model=model, example=draw_image(1, colours, height, width))
