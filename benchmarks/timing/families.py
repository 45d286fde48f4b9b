"""Models of growing size.

Takes the name of a family, gives its members from small to large, each built when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer

from benchmarks.coverage.scale import build_llama
from benchmarks.harness.resnet import build_resnet
from trainonce.structure.channels import Example

PATCH = 16


@dataclass(frozen=True, slots=True)
class Subject:
    """One model and an example for it."""

    family: str
    name: str
    build: Callable[[], tuple[nn.Module, Example]]


def _resnet(depth: int) -> Subject:
    return Subject(
        "ResNet", f"ResNet-{depth}", lambda: (build_resnet(depth, seed=0), torch.randn(1, 3, 32, 32))
    )


def _vit(name: str, *, width: int, num_heads: int, num_layers: int = 12, image_size: int = 224) -> Subject:
    def build() -> tuple[nn.Module, Example]:
        torch.manual_seed(0)
        model = VisionTransformer(
            image_size, PATCH, num_layers, num_heads, hidden_dim=width, mlp_dim=4 * width
        )
        return model, torch.randn(1, 3, image_size, image_size)

    return Subject("ViT", f"ViT-{name}/{PATCH}", build)


def _llama(num_layers: int) -> Subject:
    return Subject(
        "Llama-shaped, on meta", f"width 4096, {num_layers} layers", lambda: build_llama(num_layers)
    )


FAMILIES = {
    "resnet": [_resnet(depth) for depth in (20, 32, 44, 56, 110)],
    "vit": [
        _vit("Ti", width=192, num_heads=3),
        _vit("S", width=384, num_heads=6),
        _vit("B", width=768, num_heads=12),
        _vit("L", width=1024, num_heads=16, num_layers=24),
    ],
    "llama": [_llama(num_layers) for num_layers in (2, 4, 8, 16, 32)],
}
