"""Milliseconds per call: several things timed in turns, each with its median and percentiles."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from trainonce.errors import EngineError
from trainonce.execution.forward import call_model

WARM_UP_CALLS = 3
FEWEST_CALLS = 5


class TooSlowError(EngineError):
    """Calls that take so long that there was no time to measure all of them."""


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """Latency of one call, measured over many."""

    median: float
    low: float
    """10th percentile: what a call takes when nothing else disturbs it."""
    high: float
    """90th percentile."""


def time_in_turns(
    calls: Mapping[str, Callable[[], object]],
    *,
    seconds: float,
    devices: Iterable[torch.device] = (),
    longest: float = math.inf,
) -> dict[str, Milliseconds]:
    """Milliseconds of each call, run in turns so that a busy machine slows all of them alike.

    Takes about `seconds`, or what few calls take if those are slow; but no call begins after `longest`
    seconds. TooSlowError if not all have been measured by then. The clock stops when the `devices` have
    finished.
    """
    devices = tuple(devices)
    times: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()

    def is_late() -> bool:
        return time.perf_counter() - begin >= longest

    for _ in range(WARM_UP_CALLS):
        for call in calls.values():
            if is_late():
                raise _too_slow(longest)
            call()
        # A slow call is warm after the first.
        if time.perf_counter() - begin >= longest / 4:
            break
    wait_for(devices)
    end = time.perf_counter() + seconds
    while not is_late() and (time.perf_counter() < end or min(map(len, times.values())) < FEWEST_CALLS):
        for name, call in calls.items():
            if is_late():
                break
            start = time.perf_counter()
            call()
            wait_for(devices)
            times[name].append(1000 * (time.perf_counter() - start))
    if not all(times.values()):
        raise _too_slow(longest)
    return {name: summarize(found) for name, found in times.items()}


def _too_slow(longest: float) -> TooSlowError:
    return TooSlowError(f"calls are too slow to measure all of them within {longest:.3g} s")


@torch.no_grad()
def measure_latency(
    models: Mapping[str, nn.Module], example: Any, *, seconds: float, longest: float = math.inf
) -> dict[str, Milliseconds]:
    """Latency of each model in eval mode on the example, in turns; takes about `seconds`.

    TooSlowError if `longest` seconds were not enough.
    """
    modes = {name: model.training for name, model in models.items()}
    devices = {tensor.device for tensor in tree_leaves(example) if isinstance(tensor, torch.Tensor)}
    for model in models.values():
        model.eval()
    calls = {name: partial(call_model, model, example) for name, model in models.items()}
    try:
        return time_in_turns(calls, seconds=seconds, devices=devices, longest=longest)
    finally:
        for name, model in models.items():
            model.train(modes[name])


def summarize(times_ms: list[float]) -> Milliseconds:
    """Median, 10th and 90th percentile."""
    if len(times_ms) == 1:
        return Milliseconds(median=times_ms[0], low=times_ms[0], high=times_ms[0])
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
