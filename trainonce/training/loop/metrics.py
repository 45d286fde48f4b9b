"""What is measured besides the loss: a metric of the user's own, or what suits the outputs and targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from trainonce.errors import SettingError
from trainonce.execution.logits import class_axis, find_logits
from trainonce.messages.plain_text import in_one_line, kind_and_reason, reason_of
from trainonce.training.loop.kinds import Labels, Metrics, Positions, Values, as_rows
from trainonce.training.loop.processes import Processes

MOST_NAMES = 50
LONGEST_NAME = 60


@runtime_checkable
class StreamingMetric(Protocol):
    """A metric that is given batches, as those of torchmetrics are."""

    def update(self, outputs: Any, targets: Any) -> Any:
        """Take a batch."""
        ...

    def compute(self) -> Any:
        """The result over all batches: a number, or numbers by name."""
        ...

    def reset(self) -> Any:
        """Forget all batches."""
        ...


Metric = Callable[[Any, Any], Any] | StreamingMetric
"""A function of all outputs and all targets, or an object with update, compute and reset."""


def is_streaming(metric: Any) -> bool:
    """Whether it is an object like those of torchmetrics; some of them can be called, too."""
    return not isinstance(metric, type) and isinstance(metric, StreamingMetric)


class OwnMetric:
    """A user's metric over the whole validation data; every process sees all of it.

    One that fails is told once per evaluation and gives no numbers: no run of hours may be lost by it.
    """

    def __init__(self, metric: Metric, device: torch.device, tell: Callable[[str], None]) -> None:
        self._metric: Any = metric
        self._kept: list[tuple[Any, Any]] = []
        self._is_streaming = is_streaming(metric)
        self._tell = tell
        self._has_failed = False
        with self._attempt():
            if isinstance(metric, nn.Module):
                metric.to(device)
            if self._is_streaming:
                self._metric.reset()

    def update(self, outputs: Any, targets: Any) -> None:
        """Take a batch."""
        if self._has_failed:
            return
        with self._attempt():
            if self._is_streaming:
                self._metric.update(outputs, targets)
            else:
                self._kept.append(tree_map(_on_cpu, (outputs, targets)))

    def scores(self) -> Metrics:
        """The metric's numbers by name; none if it has failed."""
        found: Metrics = {}
        if self._has_failed:
            return found
        with self._attempt():
            if self._is_streaming:
                value = _without_sync(self._metric)
                self._metric.reset()
            else:
                outputs, targets = _joined(self._kept)
                value = self._metric(outputs, targets)
            found = named_numbers(value, name_of(self._metric))
        return found

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._has_failed = True
            reason = reason_of(error) if isinstance(error, SettingError) else kind_and_reason(error)
            self._tell(f"no {name_of(self._metric)} in this epoch: {reason}")


def name_of(metric: Any) -> str:
    """A function's name, or an object's class."""
    name = getattr(metric, "__name__", type(metric).__name__)
    return "metric" if name == "<lambda>" else in_one_line(name, LONGEST_NAME)


def named_numbers(found: Any, name: str) -> Metrics:
    """Numbers by name; SettingError if there are none."""
    values = dict(found) if isinstance(found, Mapping) else {name: found}
    numbers = {str(key): _as_number(value) for key, value in values.items()}
    wrong = [key for key, value in numbers.items() if value is None]
    if wrong or not 0 < len(numbers) <= MOST_NAMES:
        what = type(values[wrong[0]]).__name__ if wrong else f"{len(numbers)} numbers"
        raise SettingError(f"metric must return a number, or a dict of numbers by name, got {what}.")
    return {
        in_one_line(key, LONGEST_NAME): float(value) for key, value in numbers.items() if value is not None
    }


def _as_number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() != 1:
        return None
    try:
        return None if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        return None


def _without_sync(metric: Any) -> Any:
    """What `compute` gives without asking other processes, which have seen the same."""
    if not isinstance(getattr(metric, "sync_on_compute", None), bool):
        return metric.compute()
    before, metric.sync_on_compute = metric.sync_on_compute, False
    try:
        return metric.compute()
    finally:
        metric.sync_on_compute = before


def _on_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf


def _joined(batches: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """All batches as one: tensors one after the other, lists of samples as one list."""
    leaves, forms = zip(*(tree_flatten(batch) for batch in batches), strict=True)
    try:
        if any(form != forms[0] for form in forms):
            raise TypeError("batches of different form")
        return tree_unflatten([torch.cat(parts) for parts in zip(*leaves, strict=True)], forms[0])
    except (TypeError, RuntimeError):
        raise SettingError(
            "metric is a function, and the outputs of all batches can't be put together for it. Pass an "
            "object with update, compute and reset."
        ) from None


@dataclass(slots=True)
class Fitting:
    """The scores that suit the outputs and targets, as far as every batch is of the same kind."""

    counts_numbers: bool
    """Whether numbers are scored: not for a loss that takes them for class probabilities."""

    first: int
    total: int
    """The place of this process's samples among all."""

    positions: Positions | None = None
    values: Values | None = None
    labels: Labels | None = None
    _is_settled: bool = field(default=False, repr=False)

    def update(self, output: Any, targets: Any) -> None:
        """Take a batch; what it doesn't fit is dropped."""
        scores, is_first = find_logits(output), not self._is_settled
        self._is_settled = True
        axis = class_axis(scores, targets)
        if scores is not None and axis is not None and targets.dim() > 1:
            if is_first:
                self.positions = Positions(scores.shape[axis], are_pixels=scores.dim() > 3)
            if self.positions is not None and self.positions.num_classes == scores.shape[axis]:
                self.positions.update(scores.argmax(dim=axis), targets)
                return
        self.positions = None
        rows = as_rows(scores, targets) if self.counts_numbers and axis is None else None
        if rows is None:
            self.values = self.labels = None
            return
        if is_first:
            self.values, self.labels = Values(), Labels()
        if self.values is not None:
            self.values.update(*rows)
        is_binary = bool(((rows[1] == 0) | (rows[1] == 1)).all()) and scores is not None and scores.dim() <= 2
        self.labels = self.labels if is_binary else None
        if self.labels is not None:
            self.labels.update(*rows)

    def scores(self, processes: Processes) -> Metrics:
        """The scores over all processes; none if their batches are of different kinds, or one has none."""
        kinds = (self.positions, self.values, self.labels)
        # Every process must ask the others for the same numbers, or all would wait forever.
        is_empty, *lacking = processes.any_true([not self._is_settled, *(kind is None for kind in kinds)])
        if is_empty:
            return {}
        if self.positions is not None and not lacking[0]:
            return self.positions.scores(processes)
        if self.labels is not None and not lacking[2]:
            return self.labels.scores(processes, first=self.first, total=self.total)
        return self.values.scores(processes) if self.values is not None and not lacking[1] else {}
