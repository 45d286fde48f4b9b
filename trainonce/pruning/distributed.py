"""Training on several ranks: the same decision on all of them, and the model under its wrappers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def is_distributed() -> bool:
    """Whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def averaged(tensor: Tensor) -> Tensor:
    """The mean over all ranks."""
    if not is_distributed():
        return tensor
    total = _on_communication_device(tensor).clone()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).to(tensor.device)


def same_everywhere(tensor: Tensor) -> Tensor:
    """The tensor of rank 0, on all ranks."""
    if not is_distributed():
        return tensor
    shared = _on_communication_device(tensor).clone()
    dist.broadcast(shared, src=0)
    return shared.to(tensor.device)


def _on_communication_device(tensor: Tensor) -> Tensor:
    return tensor.cuda() if dist.get_backend() == "nccl" else tensor


def unwrapped_model(model: nn.Module) -> nn.Module:
    """The user's own module under `torch.compile`, DistributedDataParallel or DataParallel, in any order."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(original := model.__dict__.get("_modules", {}).get("_orig_mod"), nn.Module):
            model = original
        else:
            return model


def unwrapped_optimizer(optimizer: Any) -> Any:
    """The optimizer under wrappers that hold it as `.optimizer` without state of their own (accelerate)."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        if isinstance(optimizer, torch.optim.Optimizer) and optimizer.state is not inner.state:
            break
        optimizer = inner
    return optimizer


def safe_to_reshape(model: nn.Module) -> nn.Module:
    """The model itself, or a copy where processes train together.

    A DDP wrapper loses track of a parameter that changes shape, even if the change is undone at once.
    """
    return copy.deepcopy(model) if dist.is_available() and dist.is_initialized() else model


@contextmanager
def gradient_exchange_paused(model: nn.Module) -> Iterator[None]:
    """A context in which DDP does not all-reduce gradients of `model`; the caller averages what it needs.

    The wrapper may be created at any time, so it is looked up when it runs the model.
    """
    found: dict[nn.parallel.DistributedDataParallel, bool] = {}

    def pause(*_: Any) -> None:
        wrapper = getattr(nn.parallel.DistributedDataParallel, "_active_ddp_module", None)
        if wrapper is not None and wrapper not in found:
            found[wrapper] = wrapper.require_backward_grad_sync
            wrapper.require_backward_grad_sync = False

    hook = model.register_forward_pre_hook(pause) if is_distributed() else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()
        for wrapper, value in found.items():
            wrapper.require_backward_grad_sync = value
