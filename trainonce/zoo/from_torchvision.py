"""Models of torchvision, by the names of `torchvision.models.list_models()`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torchvision
from torch import nn

from trainonce.errors import UnknownModelError
from trainonce.messages.plain_text import kind_and_reason
from trainonce.structure.channels import Example
from trainonce.zoo.head import NewHead, replace_head
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.sources import Build, Source, downloading, refuse_name

_IMAGE_SIZES = {"inception_v3": 299, "ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320}
_CLIP_SHAPES = {
    # These need a fixed clip size; the other video models take any.
    "s3d": (3, 16, 224, 224),
    "mvit_v1_b": (3, 16, 224, 224),
    "mvit_v2_s": (3, 16, 224, 224),
}
_DETECTION_SIZE = 320
_AS_PRETRAINED = {
    # What torchvision changes if it is asked for weights, beside the weights.
    "googlenet": {"transform_input": True, "aux_logits": False},
    "inception_v3": {"transform_input": True},
}


def model_names() -> list[str]:
    """The names of all models."""
    return torchvision.models.list_models()


def build_model(name: str, wanted: Build) -> Source:
    """A torchvision model and an example of its own size."""
    source = f"torchvision:{name}"
    model = _make(name, wanted)
    new_head = None
    if wanted.loads and wanted.num_classes is not None:
        new_head = _fit_head(source, name, model, wanted.num_classes)
    example = (
        _example(name, model)
        if wanted.image_size is None
        else draw_image(1, 3, wanted.image_size, wanted.image_size)
    )
    return Source(name=source, model=model.eval(), example=example, new_head=new_head)


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
    if wanted.pretrained and _weights_of(name) is None:
        raise UnknownModelError(
            f"{source} has no pretrained weights. Omit --pretrained, or choose another model."
        )
    with warnings.catch_warnings(), downloading(source):
        # googlenet and inception_v3 warn of a changing default that doesn't matter here.
        warnings.simplefilter("ignore", FutureWarning)
        return _made(source, name, wanted)


def _made(source: str, name: str, wanted: Build) -> nn.Module:
    try:
        return torchvision.models.get_model(name, **_settings(name, wanted))
    except (ValueError, RuntimeError) as error:
        if not wanted.loads:
            raise
        raise UnknownModelError(
            f"{source} can't be built with its pretrained weights ({kind_and_reason(error)}). Choose the "
            "image size that they are for, or omit --pretrained."
        ) from None


def _settings(name: str, wanted: Build) -> dict[str, Any]:
    builder = torchvision.models.get_model_builder(name)
    settings: dict[str, Any] = {"weights": "DEFAULT" if wanted.loads else None}
    if wanted.num_classes is not None and not wanted.loads:
        settings["num_classes"] = wanted.num_classes
    if wanted.pretrained and not wanted.loads:
        settings |= _AS_PRETRAINED.get(name, {})
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


def _weights_of(name: str) -> Any:
    """The default weights of a model; None if it has none."""
    found = torchvision.models.get_model_weights(name)
    return found.DEFAULT if len(found) else None  # type: ignore[attr-defined]


def _fit_head(source: str, name: str, model: nn.Module, num_classes: int) -> NewHead | None:
    """A new last layer, if the pretrained one has another number of classes."""
    before = len(_weights_of(name).meta.get("categories") or ())
    if before == num_classes:
        return None
    found = replace_head(model, num_classes, before=before)
    if found is None:
        raise UnknownModelError(
            f"{source} does not end in a layer with one output per class. Omit --pretrained, or use the "
            "model of timm."
        )
    return found


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
