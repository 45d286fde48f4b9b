"""Weights that a model is lent while something is tried on it; its own come back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.execution.restoring import weights_lent


@contextmanager
def scratch_weights(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Lend the model redrawn weights in `dtype`; tiny initial values would hide a wrong cut."""
    generator = torch.Generator().manual_seed(0)
    noise = _Noise(
        sum(parameter.numel() for parameter in model.parameters() if not parameter.is_meta), generator
    )
    with weights_lent(model):
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.grad = None
                if not tensor.is_meta and tensor.is_floating_point():
                    wanted = tensor.dtype if dtype is None else dtype
                    tensor.data = (
                        _redrawn(tensor, noise, wanted)
                        if isinstance(tensor, nn.Parameter)
                        else tensor.to(wanted, copy=True)
                    )
                elif not tensor.is_meta:
                    tensor.data = tensor.data.clone()
            for module in model.modules():
                if (
                    isinstance(module, nn.modules.batchnorm._BatchNorm)
                    and module.running_mean is not None
                    and not module.running_mean.is_meta
                ):
                    _redraw_statistics(module, generator)
        yield


@contextmanager
def own_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Lend the model copies of its own weights in `dtype`."""
    with weights_lent(model):
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.grad = None
            tensor.data = tensor.data.to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
        yield


class _Noise:
    """An endless stream of normal numbers.

    It repeats after a while: drawing them all would take longer than the model's forward pass.
    """

    PERIOD = 1_000_003
    """A prime, so that no two rows of a matrix are the same numbers."""

    def __init__(self, count: int, generator: torch.Generator) -> None:
        self._numbers = torch.randn(min(count, self.PERIOD), generator=generator)
        self._next = 0

    def draw(self, shape: torch.Size, scale: float, like: Tensor, dtype: torch.dtype) -> Tensor:
        """The next numbers, times `scale`, on the device of `like`."""
        drawn = torch.empty(shape.numel(), dtype=dtype, device=like.device)
        filled = 0
        while filled < drawn.numel():
            part = self._numbers[self._next : self._next + drawn.numel() - filled]
            torch.mul(part.to(like.device), scale, out=drawn[filled : filled + part.numel()])
            filled += part.numel()
            self._next = (self._next + part.numel()) % self._numbers.numel()
        return drawn.reshape(shape)


def _redrawn(tensor: Tensor, noise: _Noise, dtype: torch.dtype) -> Tensor:
    if tensor.dim() >= 2 and tensor.numel() > tensor.shape[0] > 1:
        return noise.draw(tensor.shape, (tensor.shape[0] / tensor.numel()) ** 0.5, tensor, dtype)
    return tensor.to(dtype) + noise.draw(tensor.shape, 0.3, tensor, dtype)


def _redraw_statistics(module: Any, generator: torch.Generator) -> None:
    size = module.running_mean.shape
    module.running_mean.copy_(0.3 * torch.randn(size, generator=generator))
    module.running_var.copy_(0.5 + torch.rand(size, generator=generator))
