"""DataLoaders: which samples a loader visits, according to its sampler.

`fit` shuffles by itself, from the seed and the epoch alone, so that a run can resume at the exact sample.
A sampler's subset, weights and number of draws are honored; custom samplers are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainonce.errors import SettingError
from trainonce.training.batches.order import Drawing

WAY_OUT = "Pass the Dataset itself, or torch.utils.data.Subset of it"


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """The samples that a loader visits, and how."""

    dataset: Any
    drawing: Drawing | None
    batch_size: int


def read_loader(loader: DataLoader[Any], what: str) -> Visit:
    """The samples that a loader visits; SettingError if `fit` can't reproduce that. `what` names the data."""
    if loader.batch_size is None:
        reason = "no batches (batch_size=None)" if loader.batch_sampler is None else "a custom batch_sampler"
        raise SettingError(
            f"the {what} DataLoader has {reason}, which fit can't reproduce. {WAY_OUT}, with "
            "Settings(batch_size=...)."
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise SettingError(
            f"the {what} data is a {type(loader).__name__} with its own __iter__, which fit can't "
            f"reproduce. {WAY_OUT}."
        )
    sampler: Any = loader.sampler
    if type(sampler) is SubsetRandomSampler:
        sampler = [int(number) for number in sampler.indices]
    if _is_list(sampler):
        num_samples = len(loader.dataset)  # type: ignore[arg-type]
        return _whole(
            loader, Subset(loader.dataset, _numbers(sampler, num_samples, what)), what, is_mixed=True
        )
    if type(sampler) is SequentialSampler:
        return _whole(loader, _source_of(sampler, loader.dataset, what), what, is_mixed=False)
    if type(sampler) is RandomSampler:
        return _randomly(loader, sampler, what)
    if type(sampler) is WeightedRandomSampler and what == "training":
        weights = sampler.weights.detach().double().cpu()
        return _drawn(
            loader, loader.dataset, Drawing(weights, int(sampler.num_samples), bool(sampler.replacement))
        )
    reason = f"a {type(sampler).__name__}, whose choice fit can't reproduce"
    if isinstance(sampler, DistributedSampler):
        reason = "a DistributedSampler, and fit splits batches among the processes itself"
    elif type(sampler) is WeightedRandomSampler:
        reason = "a WeightedRandomSampler, and validation counts each sample once"
    raise SettingError(f"the {what} DataLoader has {reason}. {WAY_OUT}.")


def _randomly(loader: DataLoader[Any], sampler: RandomSampler, what: str) -> Visit:
    dataset = _source_of(sampler, loader.dataset, what)
    num_samples = len(dataset)
    if not sampler.replacement and sampler.num_samples == num_samples:
        return _whole(loader, dataset, what, is_mixed=True)
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
    return _drawn(loader, dataset, Drawing(weights, int(sampler.num_samples), bool(sampler.replacement)))


def _source_of(sampler: Any, dataset: Any, what: str) -> Any:
    """The data set, or its first samples if the sampler was made from something shorter."""
    count = len(sampler.data_source)
    if count > len(dataset):
        raise SettingError(
            f"the {what} DataLoader's sampler was made for {count} samples, and there are {len(dataset)}. "
            f"{WAY_OUT}."
        )
    return dataset if count == len(dataset) else Subset(dataset, range(count))


def _whole(loader: DataLoader[Any], dataset: Any, what: str, *, is_mixed: bool) -> Visit:
    """Every sample once; training drops an incomplete last batch anyway."""
    assert loader.batch_size is not None
    if loader.drop_last and what != "training" and (rest := len(dataset) % loader.batch_size):
        if is_mixed:
            raise SettingError(
                f"the {what} DataLoader drops {rest} random samples each time (drop_last). Pass "
                "drop_last=False."
            )
        dataset = Subset(dataset, range(len(dataset) - rest))
    return Visit(dataset, None, loader.batch_size)


def _drawn(loader: DataLoader[Any], dataset: Any, drawing: Drawing) -> Visit:
    assert loader.batch_size is not None
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
    return Visit(dataset, drawing, loader.batch_size)


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
