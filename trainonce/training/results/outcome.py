"""`Result`, and the figures of a run that its report shows."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import torch
from torch import nn

from trainonce.data.samples import Samples
from trainonce.engines.counting import count_bytes, count_macs, count_parameters
from trainonce.engines.timing import measure_latency
from trainonce.pruning.pruner import Pruner
from trainonce.storage.artifact import save
from trainonce.structure.succession import joined
from trainonce.training.batches.sources import first_batch
from trainonce.training.loop.processes import moved
from trainonce.training.results.layer_costs import describe_costs
from trainonce.training.results.widening import compare, plans_since, widen
from trainonce.training.settings import Settings, as_plain

LATENCY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What `fit` gives."""

    model: nn.Module
    """The small model, unwrapped, in eval mode."""

    history: Sequence[Mapping[str, Any]]
    """One record per epoch: loss, accuracy, learning rate, phase, what is kept."""

    report: Mapping[str, Any]
    """What `report.json` holds: before and after, per layer, configuration, versions.

    What is `missing`, and why.
    """

    def save(self, path: str) -> None:
        """Write the small model as `trainonce.save` does."""
        save(self.model, path)


def describe_model(model: nn.Module, example: Any) -> dict[str, Any]:
    """Multiply-adds, parameters and bytes of a model."""
    return {
        "macs": count_macs(model, example),
        "parameters": count_parameters(model),
        "bytes": count_bytes(model),
    }


def measure_both(small: nn.Module, dense: nn.Module, example: Any) -> dict[str, Any]:
    """Latency of both models, measured in turns."""
    return {
        name: asdict(found)
        for name, found in measure_latency(
            {"before": dense, "after": small}, example, seconds=LATENCY_SECONDS
        ).items()
    }


def measure_layers(small: nn.Module, dense: nn.Module, example: Any) -> list[dict[str, Any]]:
    """FLOPs and milliseconds per layer of both models, in half the time that latency takes."""
    return describe_costs(small, dense, example, seconds=LATENCY_SECONDS / 2)


def changed_settings(settings: Settings, config: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of those settings in `config` that have another value."""
    defaults = as_plain(type(settings)())
    return {name: default for name, default in defaults.items() if name in config and config[name] != default}


def describe_classes(data: Any) -> dict[str, int]:
    """How many classes and pixels a data set of the catalogue has; nothing about data that was passed in."""
    found = {name: getattr(data, name, None) for name in ("num_classes", "image_size")}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def compare_both(
    small: nn.Module, dense: nn.Module, validation: Samples, *, batch_size: int
) -> dict[str, Any] | None:
    """How far both models agree on the validation data; None if nothing was cut.

    `dense` is a copy of the model before training; it is filled with the small model's weights.
    """
    if not plans_since(dense, small):
        return None
    return asdict(compare(small, widen(small, dense), validation, batch_size=batch_size))


def describe_layers(pruner: Pruner | None) -> list[dict[str, Any]]:
    """For each group, in the model's order: the channels that are left, or why all of them are."""
    if pruner is None:
        return []
    kept = reduce(joined, pruner.cuts).kept if pruner.cuts else {}
    reasons = pruner.kept_because
    return [
        {
            "name": group.name,
            "total": group.num_channels,
            "width": group.width,
            "alive": len(kept.get(group.name, range(group.num_channels))),
            "kept": list(kept[group.name]) if group.name in kept else None,
            "kept_because": reasons.get(group.name),
            "writers": sorted({part.tensor for part in group.slices if part.role.value == "writer"}),
        }
        for group in pruner.partition.groups
    ]


def one_sample(samples: Samples, device: torch.device) -> Any:
    """The first sample as a batch of one, on the device."""
    inputs, _ = first_batch(samples, 1, "validation")
    return moved(inputs, device)


def keep_copy(model: nn.Module) -> nn.Module:
    """A frozen copy of the model."""
    return copy.deepcopy(model).requires_grad_(False)
