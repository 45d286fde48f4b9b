"""Multiply-adds as torch itself counts them: takes a model and an example, gives half of `FlopCounterMode`."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.coverage.calls import call, map_tensors
from trainonce.channels import Example


def count_macs(model: nn.Module, example: Example) -> tuple[int, str]:
    """The multiply-adds of one call, and whether they were counted on `meta` or on `cpu` tensors."""
    try:
        return _count(_on_meta(model), map_tensors(lambda tensor: tensor.to("meta"), example)), "meta"
    except Exception:
        # Sizes that depend on values (detectors) need values. Fused attention is not counted on the CPU, its parts are.
        with sdpa_kernel(SDPBackend.MATH):
            return _count(model, example), "cpu"


def _count(model: nn.Module, example: Example) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call(model, example)
    flops = counter.get_total_flops()
    assert flops % 2 == 0, "torch counts a multiply-add as two"
    return flops // 2


def _on_meta(model: nn.Module) -> nn.Module:
    """A copy without memory: its tensors are put into the copier's memory of things already copied."""
    copied: dict[int, Tensor] = {}
    for parameter in model.parameters():
        # Without gradients: torch's counter stumbles over views of parameters that are handed to a module under no_grad.
        copied[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
    for buffer in model.buffers():
        copied[id(buffer)] = buffer.detach().to("meta")
    return copy.deepcopy(model, copied)
