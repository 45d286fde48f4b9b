"""One budget on one model: what the cut model costs, and whether it predicts as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainonce
from benchmarks.harness.flops import count_image_macs
from benchmarks.harness.pruning import attach
from benchmarks.harness.recipe import take_step
from benchmarks.harness.resnet import build_resnet

WITHIN = 0.01
BATCH = 4
_CLASSES = 10


@dataclass(frozen=True, slots=True)
class Kept:
    """What a budget became."""

    asked: float
    found: float | None = None
    """The share of the multiply-adds that the cut model has; None if the library refused the budget."""

    next_unit: float | None = None
    """The least share that one unit more would add."""

    same_predictions: bool = False
    difference: float = 0.0
    """The largest difference of an output across the cut, relative to the largest output."""

    refusal: str = ""

    @property
    def is_met(self) -> bool:
        """At or below, and within 1 % of the model, or less than one unit below where a unit is coarser."""
        if self.found is None:
            return False
        gap = self.asked - self.found
        is_close = gap <= WITHIN or (self.next_unit is not None and gap < self.next_unit)
        return gap >= 0 and is_close and self.same_predictions


def measure_budget(subject: Subject, asked: float, *, num_steps: int, seed: int) -> Kept:
    """A short run on noise with the default controller: attached, frozen and cut as any run is."""
    torch.manual_seed(seed)
    model = subject.build()
    images = torch.randn(BATCH, 3, subject.image_size, subject.image_size)
    dense_macs = count_image_macs(model, images[:1])
    optimizer = subject.optimizer(model)
    try:
        pruner = attach(
            model,
            optimizer,
            example=images[:2],
            keep_flops=asked,
            total_steps=num_steps,
            schedule=trainonce.Schedule(update_every=2),
            shrink=False,
            seed=seed,
        )
    except trainonce.BudgetError as refusal:
        return Kept(asked, refusal=str(refusal))
    for _ in range(num_steps):
        noise, labels = torch.randn_like(images), torch.randint(0, _CLASSES, (BATCH,))
        take_step(model, optimizer, (noise, labels))
        pruner.step(lambda noise=noise, labels=labels: cross_entropy(model(noise), labels))
    next_unit = least_next_unit(pruner)
    tests = torch.randn(4 * BATCH, *images.shape[1:])
    before = _predict(model, tests)
    small = pruner.finish()
    after = _predict(small, tests)
    return Kept(
        asked,
        found=count_image_macs(small, images[:1]) / dense_macs,
        next_unit=next_unit,
        same_predictions=bool((before.argmax(1) == after.argmax(1)).all()),
        difference=float((before - after).abs().max() / before.abs().max()),
    )


def least_next_unit(pruner: trainonce.Pruner) -> float | None:
    """The least share of the model's multiply-adds that keeping one unit more would cost.

    None if all are kept.
    """
    partition, masks = pruner.partition, pruner.masks
    now = float(trainonce.cost.macs(partition, masks))
    costs = []
    for name, mask in masks.items():
        dropped = (mask == 0).nonzero()
        if len(dropped):
            more = mask.clone()
            more[dropped[0]] = 1
            costs.append(
                (float(trainonce.cost.macs(partition, {**masks, name: more})) - now) / partition.macs
            )
    return min(costs, default=None)


@torch.no_grad()
def _predict(model: nn.Module, images: Tensor) -> Tensor:
    model.eval()
    outputs = torch.cat([model(part) for part in images.split(BATCH)])
    model.train()
    return outputs


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
