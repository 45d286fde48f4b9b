"""Scores for what is not a class per sample: pixels and tokens, numbers, several labels at once.

Each kind takes batches of outputs and targets, and gives its scores over all of them and all processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainonce.training.loop.processes import Processes

Metrics = dict[str, float]
"""Numbers by name; shares are in percent."""

MOST_CLASSES = 4096
"""Of which pairs are counted for mean IoU; beyond that, positions that are right."""


@dataclass(slots=True)
class Positions:
    """Classes of pixels or tokens: how many are right and, for pixels, how far prediction and target overlap.

    IoU of a class = pixels that are of it and predicted so / pixels that are one of both; the mean is over
    the classes that occur. Targets that are no class, such as 255 or -100, don't count.
    """

    num_classes: int
    are_pixels: bool
    pairs_KK: Tensor = field(init=False)
    """How often each class (row) was predicted as each (column); where there are many, right and wrong."""

    def __post_init__(self) -> None:
        size = self.num_classes if self.counts_pairs else 1
        self.pairs_KK = torch.zeros(size, size + (not self.counts_pairs), dtype=torch.double)

    @property
    def counts_pairs(self) -> bool:
        """Whether pairs of classes are counted."""
        return self.are_pixels and self.num_classes <= MOST_CLASSES

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        """Count the positions of a batch; both tensors hold class numbers."""
        is_class = (targets >= 0) & (targets < self.num_classes)
        predicted, targets = predicted[is_class], targets[is_class]
        if self.counts_pairs:
            index = targets * self.num_classes + predicted
            found = index.bincount(minlength=self.num_classes**2).view_as(self.pairs_KK)
        else:
            right = (predicted == targets).sum()
            found = torch.stack([right, predicted.numel() - right])[None]
        self.pairs_KK += found.cpu()

    def scores(self, processes: Processes) -> Metrics:
        """Mean IoU and the share of pixels, or the share of tokens, that are right; nothing of nothing."""
        pairs = torch.tensor(processes.summed(self.pairs_KK.flatten().tolist()), dtype=torch.double)
        pairs_KK = pairs.view_as(self.pairs_KK)
        total = float(pairs_KK.sum())
        if not total:
            return {}
        if not self.counts_pairs:
            return {f"{'pixel' if self.are_pixels else 'token'}_accuracy": 100 * float(pairs[0]) / total}
        both, either = pairs_KK.diagonal(), pairs_KK.sum(0) + pairs_KK.sum(1) - pairs_KK.diagonal()
        occurs = either > 0
        overlap = float((both[occurs] / either[occurs]).mean())
        return {"mean_iou": 100 * overlap, "pixel_accuracy": 100 * float(both.sum()) / total}


@dataclass(slots=True)
class Values:
    """Numbers: how far off they are on average, and which share of their variance is explained.

    MAE = mean |y - t|,  R2 = 1 - sum (y - t)^2 / sum (t - mean t)^2,  per column, then averaged.
    """

    count: float = 0.0
    absolute: Tensor = field(default_factory=lambda: torch.zeros(()))
    square: Tensor = field(default_factory=lambda: torch.zeros(()))
    mean: Tensor = field(default_factory=lambda: torch.zeros(()))
    spread: Tensor = field(default_factory=lambda: torch.zeros(()))
    """Sum of squared distances from the mean of the targets."""

    def update(self, outputs_ND: Tensor, targets_ND: Tensor) -> None:
        """Add a batch: N rows of D numbers."""
        outputs_ND, targets_ND = outputs_ND.double().cpu(), targets_ND.double().cpu()
        error_ND, mean_D, count = outputs_ND - targets_ND, targets_ND.mean(0), len(targets_ND)
        if not self.count:
            self.absolute, self.square, self.mean, self.spread = torch.zeros(4, *mean_D.shape).double()
        self.absolute = self.absolute + error_ND.abs().sum(0)
        self.square = self.square + error_ND.square().sum(0)
        # Chan's formula: a sum of squares would cancel where the mean is large.
        total = self.count + count
        self.spread = self.spread + (targets_ND - mean_D).square().sum(0)
        self.spread = self.spread + (mean_D - self.mean).square() * self.count * count / total
        self.mean = self.mean + (mean_D - self.mean) * count / total
        self.count = total

    def scores(self, processes: Processes) -> Metrics:
        """MAE, and R2 unless all targets are the same."""
        if not self.count:
            return {}
        width = self.mean.numel()
        sums = torch.cat([self.mean * self.count, self.absolute, self.square]).tolist()
        count, *sums = processes.summed([self.count, *sums])
        mean, absolute, square = torch.tensor(sums, dtype=torch.double).view(3, width)
        distance = (self.mean - mean / count).square() * self.count
        spread = torch.tensor(processes.summed((self.spread + distance).tolist()), dtype=torch.double)
        found = {"mae": float((absolute / count).mean())}
        if bool((spread > 0).all()):
            found["r2"] = float((1 - square / spread).mean())
        return found


@dataclass(slots=True)
class Labels:
    """Several labels at once: how well the scores of each label rank the samples that have it.

    Average precision = sum over thresholds of precision x the recall gained there; the mean is over the
    labels that some sample has.
    """

    rows: list[Tensor] = field(default_factory=list)
    """Scores and targets of each batch, side by side."""

    def update(self, outputs_ND: Tensor, targets_ND: Tensor) -> None:
        """Keep a batch: a ranking needs all samples."""
        self.rows.append(torch.stack([outputs_ND.float(), targets_ND.float()], dim=2).cpu())

    def scores(self, processes: Processes, *, first: int, total: int) -> Metrics:
        """Mean average precision; this process has the rows from `first` on of `total`."""
        rows = processes.stacked(torch.cat(self.rows), first=first, total=total)
        found = [_average_precision(*rows[:, label].T) for label in range(rows.shape[1])]
        known = [value for value in found if value is not None]
        return {"mean_ap": 100 * sum(known) / len(known)} if known else {}


def _average_precision(scores_N: Tensor, targets_N: Tensor) -> float | None:
    num_positive = int(targets_N.sum())
    if not num_positive or bool(scores_N.isnan().any()):
        return None if not num_positive else float("nan")
    order = scores_N.argsort(descending=True)
    scores, right = scores_N[order], targets_N[order].cumsum(0).double()
    # Samples with the same score are taken together: their order says nothing.
    is_last = torch.cat([scores[1:] != scores[:-1], torch.ones(1, dtype=torch.bool)])
    right, taken = right[is_last], (torch.arange(len(scores)) + 1)[is_last]
    gained = torch.diff(right, prepend=right.new_zeros(1)) / num_positive
    return float((right / taken * gained).sum())


def as_rows(outputs: Any, targets: Any) -> tuple[Tensor, Tensor] | None:
    """Outputs and targets as rows of numbers, if each target is a number for an output; None otherwise."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.dim() == 0:
        return None
    if not outputs.is_floating_point() or targets.is_complex() or outputs.numel() != targets.numel():
        return None
    if [size for size in outputs.shape if size > 1] != [size for size in targets.shape if size > 1]:
        return None
    if outputs.dim() <= 2:
        columns = outputs.numel() // len(outputs)
        return outputs.reshape(-1, columns), targets.reshape(-1, columns)
    # Pictures of numbers: every pixel is a row.
    return outputs.reshape(-1, 1), targets.reshape(-1, 1)
