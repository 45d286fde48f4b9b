"""DataLoaders: which samples a loader visits, according to its sampler.

`fit` shuffles by itself, from the seed and the epoch alone, so that a run can resume at the exact sample.
A sampler's subset, weights and number of draws are honored, and so is the order of one of the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from trainonce.errors import SettingError
from trainonce.training.batches.order import Drawing
from trainonce.training.batches.own_order import OwnDrawing, class_for_processes

WAY_OUT = "Pass the Dataset itself, or torch.utils.data.Subset of it"


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """The samples that a loader visits, and how."""

    dataset: Any
    drawing: Drawing | OwnDrawing | None
    batch_size: int


def read_loader(loader: DataLoader[Any], what: str) -> Visit:
    """The samples that a loader visits; SettingError if `fit` can't reproduce that. `what` names the data."""
    batches: Any = loader.batch_sampler
    if batches is None:
        raise SettingError(
            f"the {what} DataLoader has no batches (batch_size=None), which fit can't reproduce. {WAY_OUT}, "
            "with Settings(batch_size=...)."
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise SettingError(
            f"the {what} data is a {type(loader).__name__} with its own __iter__, which fit can't "
            f"reproduce. {WAY_OUT}."
        )
    if (name := class_for_processes(batches)) is not None:
        raise SettingError(
            f"the {what} DataLoader has a {name}, and fit splits batches among the processes itself. "
            f"{WAY_OUT}."
        )
    if type(batches) is not BatchSampler:
        return _own(loader, batches, what, gives_batches=True)
    sampler: Any = batches.sampler
    if type(sampler) is SubsetRandomSampler:
        sampler = [int(number) for number in sampler.indices]
    if _is_list(sampler):
        num_samples = len(loader.dataset)  # type: ignore[arg-type]
        return _whole(
            batches, Subset(loader.dataset, _numbers(sampler, num_samples, what)), what, is_mixed=True
        )
    if type(sampler) is SequentialSampler:
        return _whole(batches, _source_of(sampler, loader.dataset, what), what, is_mixed=False)
    if type(sampler) is RandomSampler:
        return _randomly(loader, sampler, what)
    if type(sampler) is not WeightedRandomSampler:
        return _own(loader, sampler, what, gives_batches=False)
    if what != "training":
        raise SettingError(
            f"the {what} DataLoader has a WeightedRandomSampler, and validation counts each sample once. "
            f"{WAY_OUT}."
        )
    weights = sampler.weights.detach().double().cpu()
    return _drawn(
        batches, loader.dataset, Drawing(weights, int(sampler.num_samples), bool(sampler.replacement))
    )


def _own(loader: DataLoader[Any], sampler: Any, what: str, *, gives_batches: bool) -> Visit:
    """The order of a sampler of the user's own; in validation, which order it is makes no difference."""
    dataset: Any = loader.dataset
    drawing = OwnDrawing.of(sampler, len(dataset), what, gives_batches=gives_batches)
    batch_size = drawing.largest_batch or loader.batch_sampler.batch_size  # type: ignore[union-attr]
    if what == "training":
        return Visit(dataset, drawing, batch_size)
    chosen = drawing.possible()
    if len(chosen) != drawing.num_draws:
        raise SettingError(
            f"the {what} DataLoader's {type(sampler).__name__} gives samples more than once, so scores would "
            f"not be comparable. {WAY_OUT}."
        )
    return Visit(
        dataset if len(chosen) == len(dataset) else Subset(dataset, chosen.tolist()), None, batch_size
    )


def _randomly(loader: DataLoader[Any], sampler: RandomSampler, what: str) -> Visit:
    dataset = _source_of(sampler, loader.dataset, what)
    num_samples = len(dataset)
    if not sampler.replacement and sampler.num_samples == num_samples:
        return _whole(loader.batch_sampler, dataset, what, is_mixed=True)
    if what != "training":
        raise SettingError(
            f"the {what} DataLoader draws {sampler.num_samples} of {num_samples} samples at random, so "
            f"scores would not be comparable. {WAY_OUT}."
        )
    if not sampler.replacement and sampler.num_samples > num_samples:
        raise SettingError(
            f"the {what} DataLoader draws {sampler.num_samples} of {num_samples} samples per epoch without "
            "replacement. Train for more epochs instead."
        )
    weights = torch.ones(num_samples, dtype=torch.double)
    return _drawn(
        loader.batch_sampler, dataset, Drawing(weights, int(sampler.num_samples), bool(sampler.replacement))
    )


def _source_of(sampler: Any, dataset: Any, what: str) -> Any:
    """The data set, or its first samples if the sampler was made from something shorter."""
    count = len(sampler.data_source)
    if count > len(dataset):
        raise SettingError(
            f"the {what} DataLoader's sampler was made for {count} samples, and there are {len(dataset)}. "
            f"{WAY_OUT}."
        )
    return dataset if count == len(dataset) else Subset(dataset, range(count))


def _whole(batches: Any, dataset: Any, what: str, *, is_mixed: bool) -> Visit:
    """Every sample once; training drops an incomplete last batch anyway."""
    if batches.drop_last and what != "training" and (rest := len(dataset) % batches.batch_size):
        if is_mixed:
            raise SettingError(
                f"the {what} DataLoader drops {rest} random samples each time (drop_last). Pass "
                "drop_last=False."
            )
        dataset = Subset(dataset, range(len(dataset) - rest))
    return Visit(dataset, None, batches.batch_size)


def _drawn(batches: Any, dataset: Any, drawing: Drawing) -> Visit:
    num_possible = int((drawing.weights > 0).sum())
    if not drawing.weights.isfinite().all() or bool((drawing.weights < 0).any()):
        raise SettingError(
            "the training DataLoader's sampler has weights that are negative or not finite. Use "
            "weights of at least 0."
        )
    if len(drawing.weights) != len(dataset) or num_possible < 2:
        raise SettingError(
            f"the training DataLoader's sampler has {len(drawing.weights)} weights, {num_possible} of them "
            f"above 0, for {len(dataset)} samples. Use one weight per sample."
        )
    if not drawing.replacement and drawing.num_draws > num_possible:
        raise SettingError(
            f"the training DataLoader's sampler draws {drawing.num_draws} of {num_possible} samples without "
            "replacement. Use a smaller num_samples, or replacement=True."
        )
    return Visit(dataset, drawing, batches.batch_size)


def _is_list(sampler: Any) -> bool:
    return isinstance(sampler, Sequence) and all(isinstance(number, int) for number in sampler)


def _numbers(numbers: Sequence[int], num_samples: int, what: str) -> list[int]:
    for number in numbers:
        if not 0 <= number < num_samples:
            raise SettingError(
                f"the {what} DataLoader's sampler has index {number}, and there are {num_samples} samples, "
                "counted from 0."
            )
    return list(numbers)
