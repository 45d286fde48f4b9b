"""Multiply-adds as torch counts them on tensors without memory: half of `FlopCounterMode`.

Needs torch alone, so that it also counts in the environment of a peer; `coverage.counting` does the same for
any example.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def count_image_macs(model: nn.Module, images: Tensor) -> int:
    """The multiply-adds of one call in eval mode; the model is left alone."""
    bare = on_meta(model).eval()
    return count_macs_of(lambda: bare(images.to("meta")))


def count_macs_of(call: Callable[[], object]) -> int:
    """The multiply-adds of whatever is called."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call()
    flops = counter.get_total_flops()
    assert flops % 2 == 0, "torch counts a multiply-add as two"
    return flops // 2


def count_parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def on_meta(model: nn.Module) -> nn.Module:
    """A copy without memory: its tensors are put into the copier's memory of things already copied."""
    copied: dict[int, Tensor] = {}
    for parameter in model.parameters():
        # Without gradients: torch's counter stumbles over views of parameters that are handed to a module
        # under no_grad.
        copied[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
    for buffer in model.buffers():
        copied[id(buffer)] = buffer.detach().to("meta")
    return copy.deepcopy(model, copied)
