"""Evaluation: loss, top-1 and top-5, and other metrics of a model over a data set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainonce.data.samples import Samples
from trainonce.errors import DataError
from trainonce.execution.forward import call_model
from trainonce.execution.logits import class_axis, find_logits, logits_of, targets_are_labels
from trainonce.execution.restoring import in_eval_mode
from trainonce.messages.plain_text import reason_of
from trainonce.training.batches.sources import count_samples
from trainonce.training.loop.metrics import Fitting, Metric, OwnMetric
from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes, moved

log = logging.getLogger("trainonce")
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
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the user's metric gives, or scores of pixels, numbers or labels; shares are in percent."""


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Cross-entropy of a classifier, for class labels or class probabilities."""

    smoothing: float = 0.0

    def __call__(self, output: Any, targets: Tensor) -> Tensor:
        """The mean over the batch; auxiliary outputs are ignored."""
        logits = logits_of(output).float()
        axis = class_axis(logits, targets)
        if axis is not None and axis != 1:
            # Tokens: torch wants the classes next to the samples.
            logits = logits.movedim(axis, 1)
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measuring:
    """How a model is measured."""

    loss: Loss
    batch_size: int
    device: torch.device
    precision: Precision
    processes: Processes
    layout: torch.memory_format = torch.contiguous_format
    metric: Metric | None = None
    """The user's own; None: what suits the outputs."""
    tell: Callable[[str], None] = log.warning
    """Takes the line about a metric that fails."""


def evaluate(model: nn.Module, samples: Samples, how: Measuring) -> Scores:
    """Scores of the model in eval mode, over all processes; its mode is restored."""
    with torch.no_grad(), in_eval_mode(model):
        return _scores(model, samples, how)


def _scores(model: nn.Module, samples: Samples, how: Measuring) -> Scores:
    processes, numbers = how.processes, torch.arange(len(samples))
    own = None if how.metric is None else OwnMetric(how.metric, how.device, how.tell)
    # A user's metric can't be added up over processes, so each of them sees all samples.
    shares = numbers.tensor_split(processes.world_size if own is None else 1)
    numbers = shares[processes.rank if own is None else 0]
    counts_numbers = not isinstance(how.loss, CrossEntropy)
    fitting = Fitting(counts_numbers, first=int(numbers[0]) if len(numbers) else 0, total=len(samples))
    classes = _Classes()
    loss, count = 0.0, 0
    for inputs, targets in samples.batches(
        (piece, 0) for piece in numbers.split(how.batch_size) if len(piece)
    ):
        inputs, targets = moved(inputs, how.device, how.layout), moved(targets, how.device)
        with how.precision.autocast():
            output = call_model(model, inputs)
            value = how.loss(output, targets)
        size = count_samples(inputs, targets) or 1
        loss, count = loss + float(value) * size, count + size
        classes.update(output, targets)
        if own is not None:
            own.update(output, targets)
        else:
            fitting.update(output, targets)
    alone = processes if own is None else Processes()
    totals = alone.summed([loss, float(count), classes.num_best, classes.num_among_five])
    num_samples = max(1.0, totals[1])
    top1, top5 = (100 * found / num_samples for found in totals[2:])
    return Scores(
        loss=totals[0] / num_samples,
        top1=top1 if classes.are_counted and totals[1] else None,
        top5=top5 if classes.are_counted and classes.are_many and totals[1] else None,
        num_samples=int(totals[1]),
        metrics=fitting.scores(alone) if own is None else own.scores(),
    )


@dataclass(slots=True)
class _Classes:
    """How often the class of a sample is the best, or among the best five, of the model's scores."""

    num_best: float = 0.0
    num_among_five: float = 0.0
    are_counted: bool = True
    are_many: bool = True

    def update(self, output: Any, targets: Any) -> None:
        scores = find_logits(output)
        self.are_counted = self.are_counted and targets_are_labels(scores, targets)
        if self.are_counted and scores is not None:
            self.are_many = self.are_many and scores.shape[1] > 5
            best = scores.topk(min(5, scores.shape[1]), dim=1).indices.eq(targets.unsqueeze(1))
            self.num_best += float(best[:, :1].sum())
            self.num_among_five += float(best.any(dim=1).sum())
