"""The scores in a model's output, and which of their dimensions is the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import SettingError

NAMES = ("logits", "out")
"""What models call their scores: those of transformers, and torchvision's for segmentation."""


def logits_of(output: Any) -> Tensor:
    """The logits in a model's output; SettingError if there are none."""
    found = find_logits(output)
    if found is None:
        raise SettingError(
            f"the model returns a {type(output).__name__} without logits. Pass a loss= that can read it."
        )
    return found


def find_logits(output: Any) -> Tensor | None:
    """The output itself, its `logits` or `out`, or the first of several tensors; None if there is none."""
    if isinstance(output, Tensor):
        return output
    for name in NAMES:
        named = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(named, Tensor):
            return named
    return (
        output[0] if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor) else None
    )


def class_axis(scores: Tensor | None, targets: Any) -> int | None:
    """The class dimension, if `targets` are labels of samples, pixels or tokens; None otherwise."""
    if scores is None or not isinstance(targets, Tensor) or targets.dim() != scores.dim() - 1:
        return None
    if (
        not scores.is_floating_point()
        or targets.is_floating_point()
        or targets.is_complex()
        or targets.dtype is torch.bool
    ):
        return None
    for axis in (1, scores.dim() - 1):
        if (
            axis < scores.dim()
            and scores.shape[axis] > 1
            and scores.shape[:axis] + scores.shape[axis + 1 :] == targets.shape
        ):
            return axis
    return None


def targets_are_labels(scores: Tensor | None, targets: Any) -> bool:
    """Whether each sample has one class label."""
    return class_axis(scores, targets) is not None and targets.dim() == 1
