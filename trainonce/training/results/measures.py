"""What a model costs.

Takes models and an example, gives multiply-adds, parameters, bytes and milliseconds.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from trainonce.training.loop.evaluation import call

COUNTER = "torch.utils.flop_counter, multiply-adds of one sample"
WARM_UP_CALLS = 3


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """Of one call, over many."""

    median: float
    low: float
    """A tenth of the calls were faster."""
    high: float
    """A tenth of the calls were slower."""


def count_macs(model: nn.Module, example: Any) -> int | None:
    """Multiply-adds of the model on the example by torch's own counter.

    None if the model can't run without data.
    """
    # On the meta device nothing is computed, and no fused kernel hides its products from the counter.
    try:
        copied = copy.deepcopy(model).to("meta").eval()
        inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), example)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            call(copied, inputs)
        return counter.get_total_flops() // 2
    except Exception:
        # A model may do anything; a missing figure must not end a run that has trained for days.
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the CPU or on another device."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)


def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_bytes(model: nn.Module) -> int:
    """What the weights and buffers take on disk."""
    tensors = {tensor.data_ptr() or id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())


@torch.no_grad()
def measure_latency(
    models: Mapping[str, nn.Module], example: Any, *, seconds: float
) -> dict[str, Milliseconds]:
    """Milliseconds per call, the models in turns so that a busy machine slows all of them alike.

    Takes about `seconds`.
    """
    modes = {name: model.training for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    devices = {tensor.device for tensor in tree_leaves(example) if isinstance(tensor, torch.Tensor)}
    for model in models.values():
        model.eval()
        for _ in range(WARM_UP_CALLS):
            call(model, example)
    wait_for(devices)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 5:
        for name, model in models.items():
            start = time.perf_counter()
            call(model, example)
            wait_for(devices)
            times[name].append(1000 * (time.perf_counter() - start))
    for name, model in models.items():
        model.train(modes[name])
    return {name: summarise(found) for name, found in times.items()}


def wait_for(devices: Iterable[torch.device]) -> None:
    """Return when the devices have done their work: a GPU answers before it has computed anything."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()


def summarise(times: list[float]) -> Milliseconds:
    """Median and tenths of a list of milliseconds."""
    # The inclusive method never goes beyond what was measured.
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    return Milliseconds(median=statistics.median(times), low=tenths[0], high=tenths[-1])
