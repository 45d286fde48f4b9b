"""What a DataLoader says beside its data set: takes its sampler, gives the samples it would visit, or refuses.

`fit` draws the order itself, from the seed and the epoch alone, so that a run can go on at the exact sample.
What a sampler chooses (a subset, weights, a number of draws) is honored; one of another kind is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from trainonce.training.limits import BadSetting
from trainonce.training.order import Drawing

WAY_OUT = "Pass the Dataset itself, or torch.utils.data.Subset of it"


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """What of a data set is visited, and how."""

    dataset: Any
    drawing: Drawing | None
    batch_size: int


def read_loader(loader: DataLoader[Any], what: str) -> Visit:
    """What a loader visits; BadSetting, in the words of `what` data, if that can't be done exactly."""
    if loader.batch_size is None:
        reason = "no batches (batch_size=None)" if loader.batch_sampler is None else "a batch_sampler of its own"
        raise BadSetting(f"the {what} DataLoader has {reason}, which fit can't repeat. {WAY_OUT}, with Settings(batch_size=...).")
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise BadSetting(f"the {what} data is a {type(loader).__name__} with an __iter__ of its own, which fit can't repeat. {WAY_OUT}.")
    sampler: Any = loader.sampler
    if type(sampler) is SubsetRandomSampler:
        sampler = [int(number) for number in sampler.indices]
    if _is_list(sampler):
        return _whole(loader, Subset(loader.dataset, _numbers(sampler, len(loader.dataset), what)), what, is_mixed=True)  # type: ignore[arg-type]
    if type(sampler) is SequentialSampler:
        return _whole(loader, _source_of(sampler, loader.dataset, what), what, is_mixed=False)
    if type(sampler) is RandomSampler:
        return _randomly(loader, sampler, what)
    if type(sampler) is WeightedRandomSampler and what == "training":
        weights = sampler.weights.detach().double().cpu()
        return _drawn(loader, loader.dataset, Drawing(weights, int(sampler.num_samples), bool(sampler.replacement)))
    reason = f"a {type(sampler).__name__}, whose choice fit can't repeat"
    if isinstance(sampler, DistributedSampler):
        reason = "a DistributedSampler, and fit shares every batch among the processes itself"
    elif type(sampler) is WeightedRandomSampler:
        reason = "a WeightedRandomSampler: each sample counts once there"
    raise BadSetting(f"the {what} DataLoader has {reason}. {WAY_OUT}.")


def _randomly(loader: DataLoader[Any], sampler: RandomSampler, what: str) -> Visit:
    dataset = _source_of(sampler, loader.dataset, what)
    num_samples = len(dataset)
    if not sampler.replacement and sampler.num_samples == num_samples:
        return _whole(loader, dataset, what, is_mixed=True)
    if what != "training":
        raise BadSetting(
            f"the {what} DataLoader draws {sampler.num_samples} of {num_samples} samples at random: scores would differ. {WAY_OUT}."
        )
    if not sampler.replacement and sampler.num_samples > num_samples:
        raise BadSetting(
            f"the {what} DataLoader draws {sampler.num_samples} samples an epoch, and there are {num_samples}. Give more epochs instead."
        )
    weights = torch.ones(num_samples, dtype=torch.double)
    return _drawn(loader, dataset, Drawing(weights, int(sampler.num_samples), bool(sampler.replacement)))


def _source_of(sampler: Any, dataset: Any, what: str) -> Any:
    """What a sampler counts through: the data set, or its first samples if the sampler was made from something shorter."""
    count = len(sampler.data_source)
    if count > len(dataset):
        raise BadSetting(f"the {what} DataLoader's sampler was made for {count} samples, and there are {len(dataset)}. {WAY_OUT}.")
    return dataset if count == len(dataset) else Subset(dataset, range(count))


def _whole(loader: DataLoader[Any], dataset: Any, what: str, *, is_mixed: bool) -> Visit:
    """Every sample once; in training a rest smaller than a batch is left out anyway."""
    assert loader.batch_size is not None
    if loader.drop_last and what != "training" and (rest := len(dataset) % loader.batch_size):
        if is_mixed:
            raise BadSetting(f"the {what} DataLoader drops {rest} samples, other ones each time (drop_last). Leave drop_last out there.")
        dataset = Subset(dataset, range(len(dataset) - rest))
    return Visit(dataset, None, loader.batch_size)


def _drawn(loader: DataLoader[Any], dataset: Any, drawing: Drawing) -> Visit:
    assert loader.batch_size is not None
    num_possible = int((drawing.weights > 0).sum())
    if not drawing.weights.isfinite().all() or bool((drawing.weights < 0).any()):
        raise BadSetting("the training DataLoader's sampler has weights that are negative or not finite. Give numbers from 0 on.")
    if len(drawing.weights) != len(dataset) or num_possible < 2:
        raise BadSetting(
            f"the training DataLoader's sampler has {len(drawing.weights)} weights, {num_possible} of them above 0, "
            f"for {len(dataset)} samples. Give one weight per sample."
        )
    if not drawing.replacement and drawing.num_draws > num_possible:
        raise BadSetting(
            f"the training DataLoader's sampler draws {drawing.num_draws} samples of {num_possible} without replacement. "
            f"Give a smaller num_samples, or replacement=True."
        )
    return Visit(dataset, drawing, loader.batch_size)


def _is_list(sampler: Any) -> bool:
    return isinstance(sampler, Sequence) and all(isinstance(number, int) for number in sampler)


def _numbers(numbers: Sequence[int], num_samples: int, what: str) -> list[int]:
    for number in numbers:
        if not 0 <= number < num_samples:
            raise BadSetting(f"the {what} DataLoader's sampler names sample {number}, and there are {num_samples}. Count from 0.")
    return list(numbers)
