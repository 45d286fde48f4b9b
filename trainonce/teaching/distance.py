"""How far a model's class probabilities are from its teacher's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from trainonce.errors import SettingError
from trainonce.execution.logits import find_logits

_OTHERWISE = "Pass a loss between two outputs: teacher=trainonce.Teacher(loss=...)."


def distance_of_classes(
    outputs: Any,
    wanted: Any,
    *,
    temperature: float,
    axis: int | None = None,
    counts: Any = None,
) -> Tensor:
    """temperature^2 * KL(wanted || outputs), the mean over samples, tokens or pixels.

    Args:
        outputs: What the model returned: logits, or something that has them.
        wanted: What the teacher returned.
        temperature: What both are divided by.
        axis: The classes; None: the last axis, or of pictures (4 axes and more) the second.
        counts: For each token, whether it counts: a mask of padding. What has another shape, and None, is
            no such mask: all count.
    """
    mine, theirs = find_logits(outputs), find_logits(wanted)
    if mine is None or theirs is None:
        who = "model" if mine is None else "teacher"
        raise SettingError(f"the {who} returns no logits to compare. {_OTHERWISE}")
    if mine.shape != theirs.shape:
        raise SettingError(
            f"the teacher's logits have shape {tuple(theirs.shape)}, and the model's {tuple(mine.shape)}. "
            "Pass a teacher of the same task."
        )
    if axis is None:
        axis = 1 if mine.dim() >= 4 else -1
    if mine.dim() < 2 or mine.shape[axis] < 2:
        raise SettingError(
            f"the model returns one number per sample ({tuple(mine.shape)}), not classes. {_OTHERWISE}"
        )
    # The logarithms of small probabilities are large.
    dtype = torch.promote_types(mine.dtype, torch.float32)
    apart = kl_div(
        log_softmax(mine.to(dtype) / temperature, dim=axis),
        log_softmax(theirs.to(dtype) / temperature, dim=axis),
        reduction="none",
        log_target=True,
    ).sum(axis)
    if not isinstance(counts, Tensor) or counts.shape != apart.shape:
        return temperature**2 * apart.mean()
    weights = counts.to(apart.dtype)
    return temperature**2 * (apart * weights).sum() / weights.sum().clamp(min=1)
