"""Does the small model compute what the large one did with the same channels silent? Run both and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainonce.execution.comparison import relative_difference
from trainonce.execution.forward import copied, output_tensors, run_model
from trainonce.messages.plain_text import reason_of
from trainonce.structure.channels import Example
from trainonce.structure.plan import Plan
from trainonce.surgery.slicing import apply_plan, silence, snapshot

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 5e-2}
"""Largest difference, relative to the output's scale, that rounding explains in a deep model."""

CLOSE = 5e-6
"""A difference in float32 that no wrong cut of redrawn weights gives by chance."""

MANY_MACS = 100_000_000
"""Above this, float64 takes most of an inspection and is asked only where float32 is not close."""

LARGE_MACS = 10_000_000_000
"""Above this, float64 on a CPU takes too long and is asked only where float32 shows a difference that rounding doesn't explain."""


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Each module's train or eval mode, and the random stream, are as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    with torch.inference_mode(mode=False), torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


@contextmanager
def scratch_weights(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Lend the model redrawn weights in `dtype`; tiny initial values would hide a wrong cut."""
    restore = snapshot(model)
    generator = torch.Generator().manual_seed(0)
    noise = _Noise(
        sum(parameter.numel() for parameter in model.parameters() if not parameter.is_meta), generator
    )
    try:
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
    finally:
        restore()


@contextmanager
def own_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Lend the model copies of its own weights in `dtype`."""
    restore = snapshot(model)
    try:
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.grad = None
            tensor.data = tensor.data.to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
        yield
    finally:
        restore()


class _Noise:
    """Normal numbers without end.

    They begin again after a while, because drawing them takes longer than a model's forward pass.
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


def outputs_of(model: nn.Module, example: Example) -> list[Tensor]:
    """The model's output tensors on the example, without gradients, from a fixed random state."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [tensor.detach() for tensor in output_tensors(run_model(model, copied(example)))]


def backward_refusal(model: nn.Module, example: Example) -> str | None:
    """Why no gradient can be computed on the example; None if it can.

    Gradients and buffers are left as they were.
    """
    saved = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not buffer.is_meta]
    try:
        for parameter, _ in saved:
            parameter.grad = None
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            outputs = [
                tensor
                for tensor in output_tensors(run_model(model, copied(example)))
                if tensor.requires_grad and tensor.is_floating_point()
            ]
            if outputs:
                # Not `backward`: that would fire hooks on accumulated gradients (optimizers that step there)
                # and fill the example's.
                learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
                torch.autograd.grad([tensor.sum() for tensor in outputs], learned, allow_unused=True)
    except Exception as error:
        return reason_of(error, longest=300)
    finally:
        for parameter, grad in saved:
            parameter.grad = grad
        for buffer, content in buffers:
            buffer.data = content
    return None


def cast(example: Example, dtype: torch.dtype | None) -> Example:
    """The example with its floating tensors in `dtype`."""
    if dtype is None:
        return example
    return tree_map_only(
        Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, example
    )


def proving_dtypes(model: nn.Module) -> list[torch.dtype | None]:
    """Precisions to prove in, best first: float64, then the model's own (None)."""
    return [None] if any(parameter.is_meta for parameter in model.parameters()) else [torch.float64, None]


def quick_tolerance(dtype: torch.dtype, macs: int) -> float:
    """The largest difference in the model's own precision that needs no second opinion.

    Below 0 where it is not asked.
    """
    if dtype is not torch.float32 or macs <= MANY_MACS:
        return -1.0
    return CLOSE if macs <= LARGE_MACS else TOLERANCE[dtype]


def difference_on_scratch(model: nn.Module, plan: Plan, example: Example, dtype: torch.dtype | None) -> float:
    """How far cutting by `plan` moves the output, on redrawn weights; the model is left as it was."""
    with scratch_weights(model, dtype):
        return _difference(model, plan, cast(example, dtype))


def agrees_in_double(model: nn.Module, plan: Plan, example: Example) -> bool:
    """Whether the cut by `plan` is exact in float64 on the model's own weights.

    The model is left as it was.
    """
    try:
        with own_weights(model, torch.float64):
            return _difference(model, plan, cast(example, torch.float64)) <= TOLERANCE[torch.float64]
    except Exception:
        # A model that runs in its own precision only has no second opinion.
        return False


def _difference(model: nn.Module, plan: Plan, example: Example) -> float:
    silence(model, plan)
    before = outputs_of(model, example)
    apply_plan(model, plan)
    return relative_difference(before, outputs_of(model, example))


def failing(groups: list[str], complaint: Callable[[list[str]], str | None]) -> dict[str, str]:
    """The members of `groups` that can't be cut, with the complaint about each, found by halving."""
    words = complaint(groups) if groups else None
    if words is None:
        return {}
    if len(groups) == 1:
        return {groups[0]: words}
    middle = len(groups) // 2
    found = failing(groups[:middle], complaint) | failing(groups[middle:], complaint)
    # Harmless apart but not together: give up the whole set rather than guess.
    return found or dict.fromkeys(groups, words)
