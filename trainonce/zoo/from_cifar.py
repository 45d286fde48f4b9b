"""The paper's models for images of 32 pixels, such as `resnet56`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from trainonce.errors import UnknownModelError
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.inverted import MobileNetV2
from trainonce.zoo.residual import thin_resnet, wide_resnet
from trainonce.zoo.sources import Build, Source, refuse_name

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "resnet20": lambda num_classes: thin_resnet(20, num_classes),
    "resnet32": lambda num_classes: thin_resnet(32, num_classes),
    "resnet44": lambda num_classes: thin_resnet(44, num_classes),
    "resnet56": lambda num_classes: thin_resnet(56, num_classes),
    "resnet110": lambda num_classes: thin_resnet(110, num_classes),
    "resnet18": lambda num_classes: wide_resnet((2, 2, 2, 2), num_classes),
    "resnet34": lambda num_classes: wide_resnet((3, 4, 6, 3), num_classes),
    "mobilenet_v2": MobileNetV2,
}


def model_names() -> list[str]:
    """The names of all models."""
    return list(MODELS)


def build_model(name: str, wanted: Build) -> Source:
    """A model with random weights, by default with 10 classes."""
    source = f"cifar:{name}"
    if name not in MODELS:
        raise refuse_name(source, MODELS)
    if wanted.pretrained:
        raise UnknownModelError(
            f"{source} has no pretrained weights. Omit --pretrained, or use a model of timm or torchvision."
        )
    size = wanted.image_size or 32
    return Source(name=source, model=_make(name, wanted).eval(), example=draw_image(1, 3, size, size))


def rebuild_model(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The model again, with random weights."""
    if name not in MODELS:
        raise refuse_name(f"cifar:{name}", MODELS)
    return _make(name, Build.of(arguments))


def _make(name: str, wanted: Build) -> nn.Module:
    return MODELS[name](wanted.num_classes or 10)
