"""Encoders and decoders of segmentation_models_pytorch."""

from __future__ import annotations

from functools import partial

import segmentation_models_pytorch

from benchmarks.coverage.others.catalogue import Built, image

# PAN pools what an encoder makes of this three times more.
_SIZE = 128


def _segmenter(kind: str, encoder: str) -> Built:
    build = getattr(segmentation_models_pytorch, kind)
    return build(encoder, encoder_weights=None, classes=4), image(size=_SIZE)


MODELS = {
    "Unet": partial(_segmenter, "Unet", "resnet18"),
    "UnetPlusPlus": partial(_segmenter, "UnetPlusPlus", "mobilenet_v2"),
    "FPN": partial(_segmenter, "FPN", "resnet18"),
    "PAN": partial(_segmenter, "PAN", "resnet18"),
    "DeepLabV3Plus": partial(_segmenter, "DeepLabV3Plus", "mobilenet_v2"),
    "Segformer": partial(_segmenter, "Segformer", "mit_b0"),
}
