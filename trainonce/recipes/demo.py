"""Recipes on scikit-learn's digits, which need no download and take about a minute on two cores."""

from __future__ import annotations

from trainonce.recipes.catalogue import recipe
from trainonce.recipes.run import Run


@recipe("digits.resnet20")
def digits_resnet20() -> Run:
    """The demo: ResNet-20 on digits at 16 pixels, large enough that a smaller model is a faster one."""
    return Run(
        model="cifar:resnet20",
        data="digits",
        img_size=16,
        keep_flops=0.25,
        epochs=28,
        batch_size=32,
        lr=0.1,
        nesterov=True,
        weight_decay=5e-4,
        warmup_epochs=1.0,
        save_epochs=4,
    )
