"""Evaluation: loss, top-1 and top-5 of a model over a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainonce.data.samples import Samples
from trainonce.errors import DataError, SettingError
from trainonce.execution.forward import call_model
from trainonce.execution.restoring import in_eval_mode
from trainonce.messages.plain_text import reason_of
from trainonce.training.batches.sources import count_samples
from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes, moved

Loss = Callable[[Any, Any], Tensor]
"""Maps the model's output and the targets to the mean loss."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a model on a data set."""

    loss: float
    top1: float | None
    """Percent; None if the targets are not class labels."""

    top5: float | None
    """Percent; None also for fewer than six classes."""

    num_samples: int


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Cross-entropy of a classifier, for class labels or class probabilities."""

    smoothing: float = 0.0

    def __call__(self, output: Any, targets: Tensor) -> Tensor:
        """The mean over the batch; auxiliary outputs are ignored."""
        logits = logits_of(output).float()
        try:
            return F.cross_entropy(logits, targets, label_smoothing=self.smoothing)
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            raise DataError(
                f"cross-entropy can't compare {_described(targets)} targets with the model's output of shape "
                f"{tuple(logits.shape)} ({reason_of(error)}). Use class labels (integers from 0 to "
                "num_classes - 1), or pass a loss= of your own."
            ) from error


def _described(targets: Any) -> str:
    if not isinstance(targets, Tensor):
        return type(targets).__name__
    return f"{str(targets.dtype).removeprefix('torch.')} {tuple(targets.shape)}"


def logits_of(output: Any) -> Tensor:
    """The logits in a model's output; SettingError if there are none."""
    found = find_logits(output)
    if found is None:
        raise SettingError(
            f"the model returns a {type(output).__name__} without logits. Pass a loss= that can read it."
        )
    return found


def find_logits(output: Any) -> Tensor | None:
    """The output itself, its `logits`, or the first of several tensors; None if there is no tensor."""
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
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


@torch.no_grad()
def evaluate(
    model: nn.Module,
    samples: Samples,
    *,
    batch_size: int,
    device: torch.device,
    precision: Precision,
    loss: Loss,
    processes: Processes,
    layout: torch.memory_format = torch.contiguous_format,
) -> Scores:
    """Scores of the model in eval mode, over all processes; its mode is restored."""
    numbers = torch.arange(len(samples)).tensor_split(processes.world_size)[processes.rank]
    totals = [0.0, 0.0, 0.0, 0.0]
    counts_classes, counts_five = True, True
    with in_eval_mode(model):
        for inputs, targets in samples.batches(
            (piece, 0) for piece in numbers.split(batch_size) if len(piece)
        ):
            inputs, targets = moved(inputs, device, layout), moved(targets, device)
            with precision.autocast():
                output = call_model(model, inputs)
                value = loss(output, targets)
            count = count_samples(inputs, targets) or 1
            scores = find_logits(output)
            counts_classes = counts_classes and targets_are_labels(scores, targets)
            totals[0] += float(value) * count
            totals[3] += count
            if counts_classes and scores is not None:
                counts_five = counts_five and scores.shape[1] > 5
                best = scores.topk(min(5, scores.shape[1]), dim=1).indices.eq(targets[:, None])
                totals[1] += float(best[:, :1].sum())
                totals[2] += float(best.any(dim=1).sum())
    total_loss, ones, fives, count = processes.summed(totals)
    return Scores(
        loss=total_loss / max(1.0, count),
        top1=100 * ones / count if counts_classes and count else None,
        top5=100 * fives / count if counts_classes and counts_five and count else None,
        num_samples=int(count),
    )
