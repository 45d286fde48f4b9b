"""Recipes for every row of the paper's two result tables: optimizer, schedule, epochs, budget and method.

The paper's p is a fraction of the FLOPs that its gates can reach. `keep_flops` is a fraction of the whole
model, so layers without gates (stem, shortcut projections, classifier; for MobileNetV2 also the first block
and the last convolution) count as kept:

    keep_flops = (fixed + p * (total - fixed)) / total

For ResNet-50, p = 0.193:  (479.7 + 0.193 * (4089.2 - 479.7)) / 4089.2 = 0.288, so 71.2 % are removed; the
paper says 71.0 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trainonce.recipes.catalogue import recipe
from trainonce.recipes.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of the paper's result tables."""

    recipe: str
    model: str
    data: str
    p: float
    """The paper's p: the fraction kept of the FLOPs that gates can reach."""

    fixed_layers: tuple[str, ...]
    """Patterns of the layers without gates."""

    fixed_macs: int
    total_macs: int
    removed_by_paper: float
    """Percent of the FLOPs."""

    baseline_top1: float
    pruned_top1: float

    @property
    def keep_flops(self) -> float:
        """The paper's p as a fraction of the whole model."""
        return round((self.fixed_macs + self.p * (self.total_macs - self.fixed_macs)) / self.total_macs, 4)


_THIN = {"fixed_layers": ("conv1", "fc"), "fixed_macs": 443_008, "total_macs": 125_485_696}
_SMALL_18 = {
    "fixed_layers": ("conv1", "*.shortcut.0", "fc"),
    "fixed_macs": 8_066_048,
    "total_macs": 555_422_720,
}
_SMALL_18_100 = {**_SMALL_18, "fixed_macs": 8_112_128, "total_macs": 555_468_800}
_SMALL_34_100 = {**_SMALL_18, "fixed_macs": 8_112_128, "total_macs": 1_159_448_576}
_MOBILE = {
    "fixed_layers": ("stem.*", "blocks.0.*", "head.*", "fc"),
    "fixed_macs": 8_270_336,
    "total_macs": 87_976_448,
}
_LARGE_34 = {
    "fixed_layers": ("conv1", "*.downsample.0", "fc"),
    "fixed_macs": 137_793_536,
    "total_macs": 3_663_761_408,
}
_LARGE_50 = {
    "fixed_layers": ("conv1", "*.downsample.0", "fc"),
    "fixed_macs": 479_723_520,
    "total_macs": 4_089_184_256,
}
_LARGE_MOBILE = {
    "fixed_layers": ("features.0.*", "features.1.*", "features.18.*", "classifier.*"),
    "fixed_macs": 42_223_616,
    "total_macs": 300_774_272,
}


def _row(
    name: str, model: str, counts: dict, p: float, removed: float, baseline: float, pruned: float
) -> Row:
    data = name.partition(".")[0]
    return Row(
        recipe=name,
        model=model,
        data=data,
        p=p,
        removed_by_paper=removed,
        baseline_top1=baseline,
        pruned_top1=pruned,
        **counts,
    )


ROWS = (
    _row("cifar10.resnet18", "cifar:resnet18", _SMALL_18, 0.1908, 79.8, 94.41, 94.51),
    _row("cifar10.resnet56", "cifar:resnet56", _THIN, 0.45, 55.0, 93.50, 93.74),
    _row("cifar10.resnet56-65", "cifar:resnet56", _THIN, 0.35, 65.3, 93.50, 93.48),
    _row("cifar10.mobilenet_v2", "cifar:mobilenet_v2", _MOBILE, 0.49, 45.8, 94.45, 94.78),
    _row("cifar100.resnet18", "cifar:resnet18", _SMALL_18_100, 0.5952, 40.1, 77.95, 76.79),
    _row("cifar100.resnet34", "cifar:resnet34", _SMALL_34_100, 0.5020, 49.5, 78.43, 78.54),
    _row("imagenet.resnet34", "torchvision:resnet34", _LARGE_34, 0.54, 44.1, 73.31, 72.92),
    _row("imagenet.resnet50", "torchvision:resnet50", _LARGE_50, 0.37, 55.2, 76.13, 76.59),
    _row("imagenet.resnet50-62", "torchvision:resnet50", _LARGE_50, 0.296, 61.7, 76.13, 76.07),
    _row("imagenet.resnet50-71", "torchvision:resnet50", _LARGE_50, 0.193, 71.0, 76.13, 74.77),
    _row("imagenet.mobilenet_v2", "torchvision:mobilenet_v2", _LARGE_MOBILE, 0.6578, 30.1, 71.88, 72.02),
)


def cifar_run(row: Row) -> Run:
    """CIFAR training as in the supplement: 300 epochs of SGD at 0.1, momentum 0.9, weight decay 1e-4.

    The cosine schedule is our choice: the supplement names none.
    """
    return replace(_sgd_run(row), epochs=300, batch_size=128)


def imagenet_resnet_run(row: Row) -> Run:
    """240 epochs at learning rate 0.1, batch size 256.

    Warmup, cosine schedule and label smoothing are those of the public code.
    """
    return replace(_sgd_run(row), epochs=240, batch_size=256, warmup_epochs=5.0, smoothing=0.1, workers=8)


def imagenet_mobilenet_run(row: Row) -> Run:
    """300 epochs, cosine schedule from 0.05, weight decay 4e-5, as in the supplement."""
    return replace(_sgd_run(row), epochs=300, batch_size=256, lr=0.05, weight_decay=4e-5, workers=8)


def _sgd_run(row: Row) -> Run:
    return Run(
        model=row.model,
        data=row.data,
        keep_flops=row.keep_flops,
        method="paper",
        lr=0.1,
        weight_decay=1e-4,
    )


def run_of(row: Row) -> Run:
    """The recipe of a row, by the paper's method."""
    if row.data != "imagenet":
        return cifar_run(row)
    return imagenet_mobilenet_run(row) if "mobilenet" in row.model else imagenet_resnet_run(row)


def _register(row: Row) -> None:
    function: Callable[[], Run] = lambda: run_of(row)  # noqa: E731 - one function per row
    recipe(row.recipe)(function)


for _found in ROWS:
    _register(_found)
