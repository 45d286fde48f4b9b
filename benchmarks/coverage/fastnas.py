"""FastNAS of NVIDIA's ModelOpt on one model, in its own environment: takes a source, gives what was measured.

It is asked for half of the FLOPs, as its guide says, with its defaults. The guide leaves the score to the
user: here it is the share of ModelOpt's own channel importance that a subnet keeps, which needs no data.
Where the defaults (widths on multiples of 32) don't reach the budget, it is asked again with any width; where
the search fails, about 0.7 of every width is chosen by hand, so that what it can cut is seen all the same.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import modelopt.torch.nas as nas
import torch
from modelopt.torch.nas.utils import sort_parameters
from modelopt.torch.opt.utils import named_hparams
from modelopt.torch.prune.fastnas import FastNASConfig
from modelopt.torch.prune.pruning import PruneModeRegistry
from torch import Tensor, nn

from benchmarks.coverage.calls import as_inputs, largest_difference, reason_of, run_quietly
from benchmarks.coverage.counting import count_macs
from benchmarks.coverage.subject import load_subject
from benchmarks.coverage.training import take_training_step
from benchmarks.coverage.zeroing import Kept, zero_all_but
from benchmarks.harness.flops import count_parameters
from benchmarks.promises.budgets import SUBJECTS
from benchmarks.sheets.sheet import today, version_of
from trainonce.structure.channels import Example

KEEP_FLOPS = 0.5
LEAST_PARAMETERS = 0.02
LARGEST_DIFFERENCE = 1e-3
_ITERATIONS = 10
"""Of its binary search over one threshold: as fine as a thousandth of the range."""

_SHARE_BY_HAND = 0.7
"""Of every width; about half of the FLOPs where inputs and outputs both shrink."""

_OUTPUTS = ("out_channels", "out_features", "num_features", "num_channels")
_PACKAGES = ("torch", "torchvision", "timm", "transformers", "nvidia-modelopt", "torchprofile")

Config = dict[str, Any]
Step = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Subnet:
    """What ModelOpt made of a model."""

    model: nn.Module
    config: Config
    """The width of every layer."""

    any_width: bool
    is_satisfied: bool
    """Whether the constraint is met, as ModelOpt counts."""


def measure_fastnas(source: str) -> Iterator[Step]:
    """After each step its name and what it found; a step that raises ends it."""
    yield "build", _circumstances()
    subject = load_subject(source)
    whole = run_quietly(subject.model, subject.example)
    macs, _ = count_macs(subject.model, subject.example)
    parameters = count_parameters(subject.model)
    del subject
    num_widths, any_width = _count_widths(source)
    yield "convert", {"num_widths": num_widths}
    started = time.process_time()
    subnet, failure = _prune_or_say(lambda: load_subject(source), KEEP_FLOPS, any_width=any_width)
    seconds = time.process_time() - started
    yield "search", {"search_seconds": seconds, "search_failure": failure, "by_hand": subnet is None}
    subnet = subnet or _cut_by_hand(load_subject(source).model, any_width=any_width)
    example = load_subject(source).example
    after = run_quietly(subnet.model, example)
    if [tensor.shape for tensor in after] != [tensor.shape for tensor in whole]:
        raise ValueError("the output has another shape")
    left = count_macs(subnet.model, example)[0] / macs if macs else 1.0
    removed = 1 - count_parameters(subnet.model) / parameters
    yield (
        "cut",
        {"left_share": left, "removed_parameters": removed, "any_width": subnet.any_width}
        | {"is_satisfied": subnet.is_satisfied},
    )
    problem = "nearly nothing is cut" if removed < LEAST_PARAMETERS else None
    problem = problem or take_training_step(subnet.model, example)
    yield "training", {"usable": problem is None, "problem": problem}
    difference = _difference_from_masked(source, subnet, after)
    is_close = difference is not None and difference <= LARGEST_DIFFERENCE
    yield "comparison", {"difference": difference, "exact": problem is None and is_close}


def measure_fastnas_budget(source: str) -> Iterator[Step]:
    """A budget, `budget:MODEL@SHARE`, on one of the models of `python -m benchmarks budget`."""
    yield "build", _circumstances()
    name, _, share = source.partition(":")[2].rpartition("@")
    subject = SUBJECTS[name]
    example = torch.randn(1, 3, subject.image_size, subject.image_size)

    def build() -> _Loaded:
        torch.manual_seed(0)
        return _Loaded(subject.build().eval(), example)

    macs, _ = count_macs(build().model, example)
    subnet, failure = _prune_or_say(build, float(share), any_width=False)
    if subnet is None:
        raise RuntimeError(failure)
    left = count_macs(subnet.model, example)[0] / macs
    yield (
        "search",
        {
            "left_share": left,
            "any_width": subnet.any_width,
            "is_satisfied": subnet.is_satisfied,
        },
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    model: nn.Module
    example: Example


def _circumstances() -> dict[str, Any]:
    versions = {package: version_of(package) for package in _PACKAGES}
    return {"versions": versions, "date": today(), "threads": torch.get_num_threads()}


def _count_widths(source: str) -> tuple[int, bool]:
    """How many widths can be chosen, and whether that needs any width instead of multiples of 32."""
    try:
        return _num_widths(_convert(load_subject(source).model, any_width=False)), False
    except Exception as error:
        if "configurable" not in str(error):
            raise
        return _num_widths(_convert(load_subject(source).model, any_width=True)), True


def _num_widths(model: nn.Module) -> int:
    return len(list(named_hparams(model, configurable=True)))


def _prune_or_say(
    build: Callable[[], Any], keep_flops: float, *, any_width: bool
) -> tuple[Subnet | None, str | None]:
    """The subnet that meets the budget, or the last one that was found, or why there is none."""
    found, failure = None, None
    for is_free in (True,) if any_width else (False, True):
        subject = build()
        try:
            found = _prune(subject.model, subject.example, keep_flops, any_width=is_free)
        except Exception as error:
            failure = reason_of(error, longest=300)
            # Only a budget that multiples of 32 don't reach is worth another try.
            if "constraints can be satisfied" not in str(error):
                break
        else:
            if found.is_satisfied:
                break
    return found, None if found else failure


def _prune(model: nn.Module, example: Example, keep_flops: float, *, any_width: bool) -> Subnet:
    """What `modelopt.torch.prune.prune` does: convert, search, export."""
    inputs = _positional(model, example)
    converted = _convert(model, any_width=any_width)
    settings = {"score_func": _ImportanceKept(), "num_iters": _ITERATIONS, "verbose": False}
    with _quiet():
        small, found = nas.search(converted, {"flops": f"{100 * keep_flops:g}%"}, inputs, settings)
    best = found["best"]
    return Subnet(small, best["config"], any_width, is_satisfied=math.isfinite(best["metric"]))


def _cut_by_hand(model: nn.Module, *, any_width: bool) -> Subnet:
    """The subnet whose every width is nearest to the share; its FLOPs are not looked at."""
    converted = _convert(model, any_width=any_width)
    with _quiet():
        sort_parameters(converted)
        chosen = {
            name: min(width.choices, key=lambda choice: abs(choice - _SHARE_BY_HAND * width.max))
            for name, width in named_hparams(converted, configurable=True)
        }
        nas.select(converted, chosen, strict=False)
        config = nas.get_subnet_config(converted)
        return Subnet(nas.export(converted), config, any_width, is_satisfied=False)


def _convert(model: nn.Module, *, any_width: bool) -> nn.Module:
    mode: Any = "fastnas"
    if any_width:
        config = FastNASConfig().model_dump()
        for rules in config.values():
            for rule in (rules or {}).values():
                rule.update({key: 1 for key in rule or () if key.endswith("_divisor")})
        mode = [("fastnas", config)]
    with _quiet():
        return nas.convert(model, mode, registry=PruneModeRegistry)


class _ImportanceKept:
    """The score of a subnet: for every width the share of its channels' importance that is left, added up."""

    def __init__(self) -> None:
        self._importance: dict[str, Tensor] = {}

    def __call__(self, model: nn.Module) -> float:
        widths = dict(named_hparams(model, configurable=True))
        if not self._importance:
            # The first call is for the whole model, the only one of which all channels can be asked.
            self._importance = {name: _importance_of(width) for name, width in widths.items()}
        shares = [
            self._importance[name][width.active_slice].sum() / self._importance[name].sum()
            for name, width in widths.items()
        ]
        return float(sum(shares))


def _importance_of(width: Any) -> Tensor:
    found = width.importance
    # Channels that ModelOpt can't rank are alike.
    return torch.ones(width.max) if found is None else found.detach().double().cpu()


def _positional(model: nn.Module, example: Example) -> tuple[Any, ...]:
    """The example as a tuple: ModelOpt refuses keywords where `forward` ends in `**kwargs`."""
    inputs = as_inputs(example)
    if not isinstance(inputs, dict):
        return tuple(inputs)
    names = list(inspect.signature(model.forward).parameters.items())
    last = max(number for number, (name, _) in enumerate(names) if name in inputs)
    return tuple(inputs.get(name, parameter.default) for name, parameter in names[: last + 1])


def _difference_from_masked(source: str, subnet: Subnet, after: list[Tensor]) -> float | None:
    """The difference from the full model with the same channels zeroed; None if that can't be said."""
    masked = load_subject(source)
    if not zero_all_but(masked.model, _kept_channels(load_subject(source).model, subnet)):
        return None
    return largest_difference(run_quietly(masked.model, masked.example), after)


def _kept_channels(model: nn.Module, subnet: Subnet) -> Kept:
    """For each layer with fewer outputs in the subnet those that it keeps, numbered as in the whole model.

    The export forgets them; the same model, converted again, has them in the same order.
    """
    converted = _convert(model, any_width=subnet.any_width)
    kept: Kept = {}
    with _quiet():
        sort_parameters(converted)
        nas.select(converted, subnet.config)
        for name, width in named_hparams(converted):
            layer, _, what = name.rpartition(".")
            if what in _OUTPUTS and width.active != width.original:
                kept[layer] = torch.arange(width.original)[width.active_slice]
    return kept


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without its prints and its warning that no data was given to set the statistics of batch norms."""
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
