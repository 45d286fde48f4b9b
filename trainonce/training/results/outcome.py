"""`Result`, and the figures of a run that its report shows."""

from __future__ import annotations

import copy
import html
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainonce.data.catalogue import DataSet
from trainonce.data.samples import Samples
from trainonce.engines.counting import count_bytes, count_macs, count_parameters
from trainonce.engines.layer_costs import describe_costs
from trainonce.engines.timing import measure_latency
from trainonce.errors import ArtifactError
from trainonce.messages.plain_text import in_one_line
from trainonce.pruning.pruner import Pruner
from trainonce.runs.report.figures import figures_of
from trainonce.storage.artifact.about import About, about_of, note_about
from trainonce.structure.succession import joined
from trainonce.training.batches.sources import first_batch
from trainonce.training.loop.processes import moved
from trainonce.training.results.widening import compare, plans_since, widen
from trainonce.training.settings import Settings, as_plain
from trainonce.zoo.artifacts import save

LATENCY_SECONDS = 2.0
_MOST_WRAPPERS = 8
"""Loaders and subsets around a data set."""

MOST_CLASSES = 1000
"""Whose names are in a report."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The result of `fit`; prints as a table of the dense and the small model."""

    model: nn.Module
    """The small model, unwrapped, in eval mode."""

    history: Sequence[Mapping[str, Any]]
    """One record per epoch: loss, accuracy, learning rate, phase, fraction kept."""

    report: Mapping[str, Any]
    """The content of `report.json`: dense and small model, layers, settings, versions.

    `missing` lists what could not be measured, and why. Empty on all processes but the first.
    """

    def save(self, path: str | Path) -> None:
        """Write the small model as `trainonce.save` does."""
        save(self.model, path)

    def __repr__(self) -> str:
        title, *rows = self._rows()
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
        lines = [
            "  ".join((row[0].ljust(widths[0]), *(row[column].rjust(widths[column]) for column in (1, 2, 3))))
            for row in rows
        ]
        return "\n".join([title[0], *(f"  {line.rstrip()}" for line in lines)])

    def _repr_html_(self) -> str:
        title, *rows = self._rows()
        cells = [[f"<td>{html.escape(cell)}</td>" for cell in row] for row in rows]
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        return f"<table><caption>{html.escape(title[0])}</caption>{body}</table>"

    def _rows(self) -> list[tuple[str, ...]]:
        """A title, and if there is a report, a header and one row per figure."""
        epochs = f"{len(self.history)} epoch{'' if len(self.history) == 1 else 's'}"
        title = (f"Result: {type(self.model).__name__} after {epochs}",)
        if not self.report:
            return [title]
        figures = [(row.label, row.before, row.after, row.change) for row in figures_of(self.report)]
        return [title, ("", "dense", "small", "change"), *figures]


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
    """The defaults of those settings in `config` that have another value; they depend on start and method."""
    defaults = as_plain(type(settings)()) | settings.defaults
    return {name: default for name, default in defaults.items() if name in config and config[name] != default}


def note_data(model: nn.Module, data: Any) -> None:
    """Let a model carry the classes and the preprocessing of its data, if the data set knows them."""
    if isinstance(data, DataSet):
        note_about(model, About(preprocessing=data.preprocessing))
        classes = data.classes
    else:
        classes = _classes_of(data.train if hasattr(data, "train") else data[0])
    # More names than a folder takes are no reason to lose a model at the end of its run.
    with suppress(ArtifactError):
        note_about(model, About(classes=classes))


def _classes_of(data: Any) -> tuple[str, ...]:
    """The names of the classes, if a data set has them as those of torchvision do; also inside a loader."""
    for _ in range(_MOST_WRAPPERS):
        if hasattr(data, "classes") or not hasattr(data, "dataset"):
            break
        data = data.dataset
    found = getattr(data, "classes", ())
    is_renamed = getattr(data, "target_transform", None) is not None
    if is_renamed or not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        return ()
    return tuple(found)


def describe_about(model: nn.Module) -> dict[str, Any]:
    """What the page and the card say about how a model is built and fed."""
    about = about_of(model)
    # A page shows a thousand names at most; all of them are in the small model's folder.
    classes = tuple(in_one_line(name, 80) for name in about.classes[:MOST_CLASSES])
    return replace(about, arguments={}, classes=classes).to_data()


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
