"""The size of a model on paper: multiply-adds, parameters and bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from trainonce.execution.forward import call_model

COUNTER = "torch.utils.flop_counter, multiply-adds of one sample"


def count_macs(model: nn.Module, example: Any) -> int | None:
    """Multiply-adds of one forward pass by torch's own counter; None if that fails on meta tensors."""
    try:
        copied, inputs = on_meta(model, example)
        with macs_counted() as macs:
            call_model(copied, inputs)
            return macs()
    except Exception:
        # A model may do anything; a missing figure must not end a run that has trained for days.
        return None


def on_meta(model: nn.Module, example: Any) -> tuple[nn.Module, Any]:
    """Copies of model and example on the meta device, in eval mode.

    There, nothing is computed, and no fused kernel hides its products from the counter.
    """
    copied = copy.deepcopy(model).to("meta").eval()
    return copied, tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), example)


@contextmanager
def macs_counted() -> Iterator[Callable[[], int]]:
    """Inside, without gradients, a function that gives the multiply-adds so far."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        # torch counts a multiply-add as two operations.
        yield lambda: counter.get_total_flops() // 2


def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_bytes(model: nn.Module) -> int:
    """Size of the weights and buffers on disk."""
    tensors = {tensor.data_ptr() or id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())
