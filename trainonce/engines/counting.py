"""The size of a model on paper: multiply-adds, parameters and bytes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from trainonce.execution.forward import call_model

COUNTER = "torch.utils.flop_counter, multiply-adds of one sample"


def count_macs(model: nn.Module, example: Any) -> int | None:
    """Multiply-adds of one forward pass by torch's own counter; None if that fails on meta tensors."""
    # On the meta device nothing is computed, and no fused kernel hides its products from the counter.
    try:
        copied = copy.deepcopy(model).to("meta").eval()
        inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), example)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            call_model(copied, inputs)
        return counter.get_total_flops() // 2
    except Exception:
        # A model may do anything; a missing figure must not end a run that has trained for days.
        return None


def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_bytes(model: nn.Module) -> int:
    """Size of the weights and buffers on disk."""
    tensors = {tensor.data_ptr() or id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())
