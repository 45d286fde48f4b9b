"""What a run has come to: takes the trained models and the history, gives the facts that the report shows and the model card says."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import torch
from torch import nn

from trainonce.artifact import save
from trainonce.pruner import Pruner
from trainonce.succession import joined
from trainonce.surgery import plans_of
from trainonce.training.measures import COUNTER, count_bytes, count_macs, count_parameters, measure_latency
from trainonce.training.processes import moved
from trainonce.training.samples import Samples
from trainonce.training.widening import compare, widen

LATENCY_SECONDS = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What `fit` gives."""

    model: nn.Module
    """The small model, unwrapped, in eval mode."""

    history: Sequence[Mapping[str, Any]]
    """One record per epoch: loss, accuracy, learning rate, phase, what is kept."""

    report: Mapping[str, Any]
    """Before and after, per layer, with configuration and versions; what `report.json` holds."""

    def save(self, path: str) -> None:
        """Write the small model as `trainonce.save` does."""
        save(self.model, path)


def describe_model(model: nn.Module, example: Any) -> dict[str, Any]:
    """What one model costs."""
    return {"macs": count_macs(model, example), "parameters": count_parameters(model), "bytes": count_bytes(model)}


def compare_models(small: nn.Module, dense: nn.Module, *, validation: Samples, example: Any, batch_size: int) -> dict[str, Any]:
    """Cost of both models, their latency in turns, and whether they say the same on every validation sample.

    `dense` is the model as it was built; if anything was cut, it is filled with the small model's weights.
    """
    facts: dict[str, Any] = {"counter": COUNTER, "before": describe_model(dense, example), "after": describe_model(small, example)}
    times = measure_latency({"before": dense, "after": small}, example, seconds=LATENCY_SECONDS)
    for name, found in times.items():
        facts[name]["latency_ms"] = asdict(found)
    facts["agreement"] = None
    if plans_of(small):
        facts["agreement"] = asdict(compare(small, widen(small, dense), validation, batch_size=batch_size))
    return facts


def describe_layers(pruner: Pruner | None, small: nn.Module) -> list[dict[str, Any]]:
    """For each group of channels what stays of it, or why all of it does, in the model's order."""
    if pruner is None:
        return []
    kept = reduce(joined, plans_of(small)).kept if plans_of(small) else {}
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
    """The first sample, as a batch of one."""
    inputs, _ = next(iter(samples.batches([(torch.arange(1), 0)])))
    return moved(inputs, device)


def keep_copy(model: nn.Module) -> nn.Module:
    """The model as it is now, to compare with later."""
    return copy.deepcopy(model).requires_grad_(False)
