"""FLOPs and milliseconds per layer, of the dense and the small model.

Hooks read a meter whenever a module is entered or left. The difference to the last reading belongs to the
innermost module that was running, so the parts add up to the whole.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from trainonce.engines.counting import macs_counted, on_meta
from trainonce.engines.timing import wait_for
from trainonce.execution.forward import call_model

FEWEST_PASSES = 5
ELSEWHERE = "outside of layers"
"""What the model does between its layers: additions, reshapes, and Python."""


@dataclass(slots=True)
class _Ledger:
    """What a meter has moved by, booked on the module that was running."""

    meter: Callable[[], float]
    amounts: dict[str, float] = field(default_factory=dict)
    _running: list[str] = field(default_factory=list)
    _last: float = 0.0

    def enter(self, name: str) -> None:
        self._book()
        self._running.append(name)
        # Read again: the time that this takes belongs to no module.
        self._last = self.meter()

    def leave(self) -> None:
        self._book()
        self._running.pop()
        self._last = self.meter()

    def _book(self) -> None:
        if self._running:
            name = self._running[-1]
            self.amounts[name] = self.amounts.get(name, 0) + self.meter() - self._last


def describe_costs(
    small: nn.Module, dense: nn.Module, example: Any, *, seconds: float
) -> list[dict[str, Any]]:
    """FLOPs and milliseconds of each layer before and after, in the order in which layers are called.

    Layers without multiply-adds are summed up by their class. FLOPs add up to those of the whole model.
    Takes about `seconds`.
    """
    models = {"before": dense, "after": small}
    macs = {which: count_by_module(model, example) for which, model in models.items()}
    times = time_by_module(models, example, seconds=seconds)
    called = dict.fromkeys(name for which in models for name in (*macs[which], *times[which]))
    modules = dict(dense.named_modules())
    layers, others, elsewhere = sort_modules(modules, called, *macs.values())

    def row(name: str, kind: str, members: list[str]) -> dict[str, Any]:
        sums = {
            which: {
                "macs": round(sum(macs[which].get(member, 0) for member in members)),
                "ms": sum(times[which].get(member, 0.0) for member in members),
            }
            for which in models
        }
        return {"name": name, "kind": kind, "count": len(members), **sums}

    return [
        *(row(name, type(modules[name]).__name__, [name]) for name in layers),
        *(row("", kind, members) for kind, members in others.items()),
        *([row(ELSEWHERE, "", elsewhere)] if elsewhere else []),
    ]


def sort_modules(
    modules: Mapping[str, nn.Module], called: Iterable[str], *macs: Mapping[str, float]
) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Modules with multiply-adds, those without by their class, and those that only hold others."""
    layers: list[str] = []
    others: dict[str, list[str]] = {}
    elsewhere: list[str] = []
    for name in called:
        if name and any(found.get(name) for found in macs):
            layers.append(name)
        elif not name or next(modules[name].children(), None) is not None:
            elsewhere.append(name)
        else:
            others.setdefault(type(modules[name]).__name__, []).append(name)
    return layers, others, elsewhere


def count_by_module(model: nn.Module, example: Any) -> dict[str, float]:
    """Multiply-adds of each module itself, without those of the modules in it."""
    copied, inputs = on_meta(model, example)
    with macs_counted() as macs:
        ledger = _Ledger(macs)
        with _booked(copied, ledger):
            call_model(copied, inputs)
    return ledger.amounts


@torch.no_grad()
def time_by_module(
    models: Mapping[str, nn.Module], example: Any, *, seconds: float
) -> dict[str, dict[str, float]]:
    """Milliseconds of each module itself: medians over passes in eager mode, the models in turns."""
    devices = {tensor.device for tensor in tree_leaves(example) if isinstance(tensor, torch.Tensor)}

    def clock() -> float:
        wait_for(devices)
        return 1000 * time.perf_counter()

    modes = {name: model.training for name, model in models.items()}
    passes: dict[str, list[dict[str, float]]] = {name: [] for name in models}
    end = time.perf_counter() + seconds
    try:
        # The first pass warms up and is thrown away.
        while time.perf_counter() < end or len(passes[next(iter(models))]) <= FEWEST_PASSES:
            for name, model in models.items():
                ledger = _Ledger(clock)
                with _booked(model.eval(), ledger):
                    call_model(model, example)
                passes[name].append(ledger.amounts)
    finally:
        for name, model in models.items():
            model.train(modes[name])
    return {
        name: {
            module: statistics.median(amounts.get(module, 0.0) for amounts in found[1:])
            for module in found[-1]
        }
        for name, found in passes.items()
    }


@contextmanager
def _booked(model: nn.Module, ledger: _Ledger) -> Iterator[None]:
    """Inside, each call of a module of the model is booked."""
    hooks = []
    try:
        for name, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(lambda *_, name=name: ledger.enter(name)))
            hooks.append(module.register_forward_hook(lambda *_: ledger.leave(), always_call=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()
