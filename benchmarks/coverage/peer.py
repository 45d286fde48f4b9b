"""Torch-Pruning on one model, used as its README says: takes a source, gives what was measured, step by step.

usable: the cut model runs, keeps its output's shape, trains, and has lost at least 2 % of its parameters.
exact: it also equals the full model with the same channels zeroed, within 1e-3 of the output's scale.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch_pruning
from torch import Tensor, nn

from benchmarks.coverage.calls import as_inputs, largest_difference, run_quietly, tiny_model
from benchmarks.coverage.counting import count_macs
from benchmarks.coverage.subject import load_subject
from benchmarks.coverage.training import take_training_step
from benchmarks.harness.flops import count_parameters
from trainonce.structure.channels import Example

RATIO = 0.5
LEAST_PARAMETERS = 0.02
LARGEST_DIFFERENCE = 1e-3


class UnknownLayer(Exception):
    """A layer of which this file can't say how a channel is zeroed."""


def warm_up() -> None:
    """Pay for imports and caches that the first graph of a process pays for all."""
    torch_pruning.DependencyGraph().build_dependency(tiny_model(), torch.zeros(1, 4))


def measure_peer(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """After each step its name and what it found; a step that raises ends it."""
    subject = load_subject(source)
    outputs = run_quietly(subject.model, subject.example)
    macs, _ = count_macs(subject.model, subject.example)
    whole = Whole(outputs, macs, count_parameters(subject.model))
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_pruning.DependencyGraph().build_dependency(subject.model, as_inputs(subject.example))
        yield "graph", {"graph_seconds": time.perf_counter() - started}
        try:
            yield "cut", _measure_cut(source, whole, _last_layers)
        except OtherShape:
            # Models that return their features have no classifier: leave out every layer that could write an
            # output.
            yield (
                "cut",
                {
                    "left_out": "every layer as wide as an output",
                    **_measure_cut(source, whole, _layers_as_wide),
                },
            )


class OtherShape(Exception):
    """The cut changed the shape of an output."""


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """The model before the cut."""

    outputs: list[Tensor]
    macs: int
    num_parameters: int


def _measure_cut(
    source: str, whole: Whole, choose_ignored: Callable[[nn.Module, list[Tensor]], list[nn.Module]]
) -> dict[str, Any]:
    subject = load_subject(source)
    model, example = subject.model, subject.example
    dropped = _prune(model, as_inputs(example), choose_ignored(model, whole.outputs))
    after = run_quietly(model, example)
    if [tensor.shape for tensor in after] != [tensor.shape for tensor in whole.outputs]:
        raise OtherShape("the output has another shape")
    macs, _ = count_macs(model, example)
    removed_parameters = 1 - count_parameters(model) / whole.num_parameters
    problem = (
        "nearly nothing is cut"
        if removed_parameters < LEAST_PARAMETERS
        else take_training_step(model, example)
    )
    difference = _difference_from_masked(source, dropped, after)
    return {
        "removed_share": 1 - macs / whole.macs if whole.macs else 0.0,
        "removed_parameters": removed_parameters,
        "usable": problem is None,
        "problem": problem,
        "difference": difference,
        "exact": problem is None and difference is not None and difference <= LARGEST_DIFFERENCE,
    }


def _difference_from_masked(source: str, dropped: Dropped, after: list[Tensor]) -> float | None:
    """The difference from the full model with the same channels zeroed; None if this file can't zero them."""
    masked = load_subject(source)
    try:
        _zero_channels(masked.model, dropped)
    except UnknownLayer:
        return None
    return largest_difference(run_quietly(masked.model, masked.example), after)


Dropped = dict[tuple[str, int], set[int]]
"""For each module or bare parameter, and the axis if it is a parameter, the channels that were removed."""


def _layers_as_wide(model: nn.Module, outputs: list[Tensor]) -> list[nn.Module]:
    """The layers as wide as an output's channels, in the model's order."""
    widths = {
        tensor.shape[1] if tensor.dim() >= 4 else tensor.shape[-1] for tensor in outputs if tensor.dim() >= 2
    }
    return [module for module in model.modules() if _width(module) in widths]


def _last_layers(model: nn.Module, outputs: list[Tensor]) -> list[nn.Module]:
    """Of the layers as wide as an output's channels the last of each width.

    Classifiers, which must keep their classes.
    """
    return list({_width(module): module for module in _layers_as_wide(model, outputs)}.values())


def _width(module: nn.Module) -> int | None:
    if isinstance(module, nn.Linear):
        return module.out_features
    return module.out_channels if isinstance(module, nn.modules.conv._ConvNd) else None


def _prune(model: nn.Module, inputs: Example, ignored: list[nn.Module]) -> Dropped:
    """Cut half of the channels; the answer numbers them as they were before the first cut."""
    pruner = torch_pruning.pruner.BasePruner(
        model,
        inputs,
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        pruning_ratio=RATIO,
        ignored_layers=ignored,
    )
    graph = pruner.DG
    # The graph also has modules of its own for reshapes and the like; they have no name and nothing to zero.
    names = {module: name for name, module in model.named_modules()}
    alive: dict[tuple[str, int], list[int]] = {}
    dropped: Dropped = {}
    for group in pruner.step(interactive=True):
        for dependency, indices in group:
            target = dependency.target.module
            is_parameter = isinstance(target, nn.Parameter)
            if not graph.is_out_channel_pruning_fn(dependency.handler) or not (
                is_parameter or target in names
            ):
                continue
            key = (
                (graph._param_to_name[target], dependency.target.pruning_dim)
                if is_parameter
                else (names[target], 0)
            )
            numbers = alive.setdefault(key, list(range(graph.get_out_channels(dependency.target))))
            gone = {numbers[index] for index in indices}
            dropped.setdefault(key, set()).update(gone)
            alive[key] = [number for number in numbers if number not in gone]
        group.prune()
    return dropped


@torch.no_grad()
def _zero_channels(model: nn.Module, dropped: Dropped) -> None:
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    for (name, axis), channels in dropped.items():
        gone = torch.tensor(sorted(channels), dtype=torch.long)
        if name in parameters and name not in modules:
            parameters[name].index_fill_(axis, gone, 0)
        else:
            _zero_outputs(name, modules[name], gone)


def _zero_outputs(name: str, module: nn.Module, gone: Tensor) -> None:
    if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
        threefold = torch.cat([gone + part * module.embed_dim for part in range(3)])
        rows = [
            (module.in_proj_weight, threefold),
            (module.in_proj_bias, threefold),
            (module.out_proj.weight, gone),
            (module.out_proj.bias, gone),
        ]
    elif isinstance(module, nn.modules.conv._ConvTransposeNd):
        module.weight.index_fill_(1, gone, 0)
        rows = [(module.bias, gone)]
    elif isinstance(module, nn.Embedding):
        module.weight.index_fill_(1, gone, 0)
        rows = []
    elif isinstance(module, _LAYERS_BY_ROW):
        rows = [(module.weight, gone), (getattr(module, "bias", None), gone)]
    else:
        raise UnknownLayer(f"{name} is a {type(module).__name__}")
    for tensor, indices in rows:
        if tensor is not None:
            tensor.index_fill_(0, indices, 0)


_LAYERS_BY_ROW = (
    nn.Linear,
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.PReLU,
)
