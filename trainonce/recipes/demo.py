"""Recipes on scikit-learn's digits, which need no download and take about a minute on two cores."""

from __future__ import annotations

from trainonce.recipes.catalogue import recipe
from trainonce.recipes.run import Run


@recipe("digits.resnet20")
def digits_resnet20() -> Run:
    """The demo: ResNet-20 on 8-pixel digits."""
    return Run(
        model="cifar:resnet20",
        data="digits",
        keep_flops=0.45,
        epochs=40,
        batch_size=64,
        lr=0.1,
        nesterov=True,
        weight_decay=5e-4,
        warmup_epochs=1.5,
        save_epochs=4,
    )
