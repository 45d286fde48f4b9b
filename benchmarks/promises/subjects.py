"""The models whose budgets are checked.

Takes a name, gives a model with a batch and an optimizer that suits it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import timm
import torch
import torchvision
from torch import nn

from benchmarks.harness.resnet import build_resnet


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, the size of its images, and how it learns."""

    build: Callable[[], nn.Module]
    image_size: int
    is_transformer: bool = False

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.is_transformer:
            return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


SUBJECTS = {
    "ResNet-20": Subject(lambda: build_resnet(20, seed=0), 32),
    "ResNet-56": Subject(lambda: build_resnet(56, seed=0), 32),
    "MobileNetV2": Subject(lambda: torchvision.models.mobilenet_v2(), 64),
    "DenseNet-121": Subject(lambda: torchvision.models.densenet121(), 64),
    "ViT-tiny": Subject(lambda: timm.create_model("vit_tiny_patch16_224"), 224, is_transformer=True),
    "Swin-tiny": Subject(lambda: timm.create_model("swin_tiny_patch4_window7_224"), 224, is_transformer=True),
}
