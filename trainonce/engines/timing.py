"""Milliseconds per call: several things timed in turns, each with its median and percentiles."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from trainonce.execution.forward import call_model

WARM_UP_CALLS = 3
FEWEST_CALLS = 5


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """Latency of one call, measured over many."""

    median: float
    low: float
    """10th percentile: what a call takes when nothing else disturbs it."""
    high: float
    """90th percentile."""


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], *, seconds: float, devices: Iterable[torch.device] = ()
) -> dict[str, Milliseconds]:
    """Milliseconds of each call, run in turns so that a busy machine slows all of them alike.

    Takes about `seconds`. The clock stops when the `devices` have finished.
    """
    devices = tuple(devices)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(WARM_UP_CALLS):
            call()
    wait_for(devices)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < FEWEST_CALLS:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            wait_for(devices)
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: summarize(found) for name, found in times.items()}


@torch.no_grad()
def measure_latency(
    models: Mapping[str, nn.Module], example: Any, *, seconds: float
) -> dict[str, Milliseconds]:
    """Latency of each model in eval mode on the example, in turns; takes about `seconds`."""
    modes = {name: model.training for name, model in models.items()}
    devices = {tensor.device for tensor in tree_leaves(example) if isinstance(tensor, torch.Tensor)}
    for model in models.values():
        model.eval()
    calls = {name: partial(call_model, model, example) for name, model in models.items()}
    try:
        return time_in_turns(calls, seconds=seconds, devices=devices)
    finally:
        for name, model in models.items():
            model.train(modes[name])


def summarize(times_ms: list[float]) -> Milliseconds:
    """Median, 10th and 90th percentile."""
    # The inclusive method never goes beyond what was measured.
    tenths = statistics.quantiles(times_ms, n=10, method="inclusive")
    return Milliseconds(median=statistics.median(times_ms), low=tenths[0], high=tenths[-1])


def wait_for(devices: Iterable[torch.device]) -> None:
    """Block until the devices are idle: a GPU returns before it has computed anything."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()
