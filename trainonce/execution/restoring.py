"""The one way to leave a model as it was.

Takes a model and puts back what a run or a cut has changed: train and eval modes, random streams, gradients,
the content of tensors, the attributes of modules, an optimizer's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Restore each module's train or eval mode, and the random streams."""
    restore = _saved_modes(model)
    devices = {tensor.device.index or 0 for tensor in model.parameters() if tensor.device.type == "cuda"}
    with (
        torch.inference_mode(mode=False),
        torch.random.fork_rng(devices=sorted(devices)),
        _undone_by(restore),
    ):
        yield


@contextmanager
def in_eval_mode(*models: nn.Module) -> Iterator[None]:
    """Inside, the models are in eval mode; afterwards each is put back by its own `train`.

    Layers that rewrite their weights when the mode changes (LoRA that merges) do so both times.
    """
    modes = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, was_training in zip(models, modes, strict=True):
            model.train(was_training)


@contextmanager
def gradients_aside(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Inside, no parameter has a gradient; afterwards each has its own again.

    Gradients are put aside, not copied: a backward pass inside makes new ones.
    """
    aside = [(parameter, parameter.grad) for parameter in parameters]
    for parameter, _ in aside:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in aside:
            parameter.grad = gradient


@contextmanager
def contents_kept(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Restore, bit by bit, tensors that are written to in place; yields copies of them."""
    saved = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield [content for _, content in saved]
    finally:
        for tensor, content in saved:
            if tensor.shape != content.shape:
                tensor.data = content
            elif not is_expanded(tensor):
                tensor.data.copy_(content)


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore buffers (batch-norm statistics), whether they are written to or replaced."""
    registered = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    with contents_kept(buffer for buffer in model.buffers() if not buffer.is_meta):
        try:
            yield
        finally:
            for module, name, buffer in registered:
                module._buffers[name] = buffer


def attributes_kept(model: nn.Module) -> AbstractContextManager[None]:
    """Restore every attribute and buffer of every module; the content of tensors is not restored."""
    return _undone_by(_saved_attributes(model))


def weights_lent(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, tensors may hold other data (`tensor.data = ...`); afterwards each has its own again."""
    return _undone_by(snapshot(model))


@contextmanager
def _undone_by(restore: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        restore()


def snapshot(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer] = ()) -> Callable[[], None]:
    """A function that puts data, gradients, attributes and optimizer state back to what they are now.

    The snapshot holds references: data that is written to in place afterwards must be a copy.
    """
    data = [(tensor, tensor.data, tensor.grad) for tensor in (*model.parameters(), *model.buffers())]
    restore_attributes = _saved_attributes(model)
    states = [(state, dict(state)) for optimizer in optimizers for state in optimizer.state.values()]

    def restore() -> None:
        for tensor, content, grad in data:
            replace_data(tensor, content, grad)
        restore_attributes()
        for state, saved in states:
            state.clear()
            state.update(saved)
        drop_caches(model)

    return restore


def replace_data(tensor: Tensor, content: Tensor, grad: Tensor | None) -> None:
    """Give a parameter or buffer new content of any shape and dtype; it stays the same object."""
    tensor.grad = None
    if tensor.requires_grad and content.shape != tensor.shape:
        # A graph that is still alive holds a gradient accumulator of the old shape; a change of dtype makes
        # torch forget it.
        other = torch.float32 if tensor.dtype is torch.float64 else torch.float64
        tensor.data = torch.empty(0, dtype=other, device=tensor.device)
    tensor.data = content
    tensor.grad = grad


def drop_caches(model: nn.Module) -> None:
    """Make modules forget what they computed from old weights.

    Those that cache for inference drop it when they enter training mode.
    """
    restore = _saved_modes(model)
    model.train()
    restore()


def _saved_modes(model: nn.Module) -> Callable[[], None]:
    modes = [(module, module.training) for module in model.modules()]

    def restore() -> None:
        for module, training in modes:
            module.training = training

    return restore


def _saved_attributes(model: nn.Module) -> Callable[[], None]:
    ordinary = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    saved = [(module, dict(vars(module)), dict(module._buffers)) for module in ordinary]

    def restore() -> None:
        for module, attributes, buffers in saved:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)

    return restore


def is_expanded(tensor: Tensor) -> bool:
    """Whether elements share memory, so that nobody can write to them in place."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
