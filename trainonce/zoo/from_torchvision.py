"""Models of torchvision, by the names of `torchvision.models.list_models()`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torchvision
from torch import nn

from trainonce.errors import UnknownModelError
from trainonce.structure.channels import Example
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.sources import Build, Source, refuse_name

_IMAGE_SIZES = {"inception_v3": 299, "ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320}
_CLIP_SHAPES = {
    # These need a fixed clip size; the other video models take any.
    "s3d": (3, 16, 224, 224),
    "mvit_v1_b": (3, 16, 224, 224),
    "mvit_v2_s": (3, 16, 224, 224),
}
_DETECTION_SIZE = 320


def model_names() -> list[str]:
    """The names of all models."""
    return torchvision.models.list_models()


def build_model(name: str, wanted: Build) -> Source:
    """A torchvision model and an example of its own size."""
    source = f"torchvision:{name}"
    model = _make(name, wanted)
    if wanted.pretrained and wanted.num_classes is not None:
        _replace_head(source, model, wanted.num_classes)
    example = (
        _example(name, model)
        if wanted.image_size is None
        else draw_image(1, 3, wanted.image_size, wanted.image_size)
    )
    return Source(name=source, model=model.eval(), example=example)


def rebuild_model(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The model again, with random weights."""
    return _make(name, Build.of(arguments))


def _make(name: str, wanted: Build) -> nn.Module:
    source = f"torchvision:{name}"
    if name not in torchvision.models.list_models():
        raise refuse_name(source, torchvision.models.list_models())
    if name.startswith("quantized_"):
        raise UnknownModelError(
            f"{source} has int8 weights, which can't be trained or pruned. "
            f"Use torchvision:{name.removeprefix('quantized_')}."
        )
    with warnings.catch_warnings():
        # googlenet and inception_v3 warn of a changing default that doesn't matter here.
        warnings.simplefilter("ignore", FutureWarning)
        return torchvision.models.get_model(name, **_settings(name, wanted))


def _settings(name: str, wanted: Build) -> dict[str, Any]:
    builder = torchvision.models.get_model_builder(name)
    settings: dict[str, Any] = {"weights": "DEFAULT" if wanted.pretrained else None}
    if wanted.num_classes is not None and not wanted.pretrained:
        settings["num_classes"] = wanted.num_classes
    if wanted.image_size is not None and "image_size" in inspect.signature(_class_of(builder)).parameters:
        settings["image_size"] = wanted.image_size
    if "weights_backbone" in inspect.signature(builder).parameters:
        settings["weights_backbone"] = None
    if _kind(name) == "detection" and not name.startswith("ssd"):
        # By default images are upscaled to 800 pixels: the same channels in six times the time.
        settings |= {"min_size": _DETECTION_SIZE, "max_size": _DETECTION_SIZE}
    return settings


def _class_of(builder: Any) -> Any:
    """The class that a builder is annotated to return: only some take `image_size`."""
    found = inspect.signature(builder).return_annotation
    module = inspect.getmodule(builder)
    found = getattr(module, found, nn.Module) if isinstance(found, str) else found
    return found if inspect.isclass(found) else nn.Module


def _replace_head(source: str, model: nn.Module, num_classes: int) -> None:
    """Replace the last linear layer if it has another number of classes."""
    path, last = next(
        (
            (path, module)
            for path, module in reversed(list(model.named_modules()))
            if isinstance(module, nn.Linear)
        ),
        ("", None),
    )
    if last is None:
        raise UnknownModelError(
            f"{source} does not end in a linear layer. Omit --pretrained, or use the model of timm."
        )
    if last.out_features != num_classes:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, nn.Linear(last.in_features, num_classes))


def _example(name: str, model: nn.Module) -> Example:
    kind = _kind(name)
    size = _IMAGE_SIZES.get(name, _DETECTION_SIZE if kind == "detection" else 224)
    if kind == "detection":
        return ([draw_image(3, size, size).sigmoid()],)
    if kind == "optical_flow":
        # The smallest images whose correlation pyramid still has four levels.
        first, second = draw_image(2, 1, 3, 128, 128).sigmoid() * 2 - 1
        return first, second
    if kind == "video":
        return draw_image(1, *_CLIP_SHAPES.get(name, (3, 8, 112, 112)))
    return draw_image(1, 3, getattr(model, "image_size", size), getattr(model, "image_size", size))


def _kind(name: str) -> str:
    """`detection`, `segmentation`, `video`, `optical_flow`, or the module's name for classifiers."""
    return torchvision.models.get_model_builder(name).__module__.split(".")[2]
