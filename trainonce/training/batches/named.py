"""Batches that are dicts: their targets told from their inputs, and inputs given as the model takes them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from trainonce.data.samples import Draw, Samples
from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line
from trainonce.training.batches.sources import DatasetSamples, Source

TARGETS = ("labels", "label", "targets", "target", "y")
"""What data sets call their targets, in the order in which they are looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedSamples:
    """Samples whose batches are dicts, as pairs (inputs, targets)."""

    samples: Samples
    target: str
    single: str | None
    """The one input that is passed by its place, because the model has another name for it."""

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, draws: Iterable[Draw]) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets of each draw."""
        for batch in self.samples.batches(draws):
            named: Any = batch
            inputs = {name: part for name, part in named.items() if name != self.target}
            yield inputs if self.single is None else inputs[self.single], named[self.target]


def as_pairs(source: Source, model: nn.Module, what: str) -> Source:
    """The source with pairs for batches, if they are dicts; `what` names the data in errors."""
    if not isinstance(source.samples, DatasetSamples):
        return source
    batch: Any = next(iter(source.samples.batches([(torch.arange(2), 0)])))
    if not isinstance(batch, Mapping):
        return source
    target = next((name for name in TARGETS if name in batch), None)
    inputs = [name for name in batch if name != target]
    if target is None or not inputs:
        raise SettingError(
            f"a batch of the {what} data is a dict of {_listed(batch)}. Call its targets {TARGETS[0]}, "
            "beside at least one input."
        )
    single = _single(inputs, model, what)
    return replace(source, samples=NamedSamples(source.samples, target, single))


def _single(inputs: list[str], model: nn.Module, what: str) -> str | None:
    """The input to pass by its place, None to pass all by name; SettingError if the model takes neither."""
    taken = inspect.signature(model.forward).parameters
    if any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return None
    unknown = [name for name in inputs if name not in taken]
    if not unknown:
        return None
    if len(inputs) == 1:
        return inputs[0]
    raise SettingError(
        f"a batch of the {what} data has {_listed(unknown)}, which the forward of {type(model).__name__} "
        f"doesn't take. It takes {_listed(taken)}: leave the others out of the data."
    )


def _listed(names: Iterable[Any]) -> str:
    return in_one_line(", ".join(map(str, names)) or "nothing", 200)
