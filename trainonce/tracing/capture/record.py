"""Run the model once as it is, and let channel labels flow with the data.

Two modes watch the run: one sees every ATen operator and moves labels (`operators`), one sees the calls as
the user wrote them and notes where their sizes come from (`calls`). No copy of the model, no graph, no
export: what runs is traced.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainonce.execution.forward import copied, output_tensors, run_model
from trainonce.execution.restoring import attributes_kept
from trainonce.execution.settings import holds_settings
from trainonce.structure.channels import Example
from trainonce.tracing.capture.alternatives import running_along
from trainonce.tracing.capture.application import apply_rule
from trainonce.tracing.capture.calls import CallMode
from trainonce.tracing.capture.patterns import sizes_not_remembered
from trainonce.tracing.capture.shape_only import StandIns
from trainonce.tracing.operators.registry import Call, only_moves_data
from trainonce.tracing.state.expressions import Attribute, TracedInt
from trainonce.tracing.state.labels import Value
from trainonce.tracing.state.recording import Recording
from trainonce.tracing.state.tracer import Tracer, ValueNeededError
from trainonce.tracing.swaps import computing_openly


def record(
    model: nn.Module, example: Example, recording: Recording, *, counts_cost: bool, with_values: bool
) -> None:
    """Run the model in its present mode and add what it shows to `recording`; the model is left as it was.

    Without values the run is cheap; ValueNeededError is raised if the model asks for one. Methods that could
    stand in for a module's `forward` run along.
    """
    tracer = Tracer(recording, counts_cost=counts_cost)
    example = copied(example)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(_traced_state(model, tracer))
        stack.enter_context(computing_openly(model, recording.swaps, tracer))
        stack.enter_context(_module_names(model, tracer))
        stack.enter_context(sizes_not_remembered())
        stack.enter_context(running_along(recording.alternatives, tracer))
        stack.enter_context(_OperatorMode(tracer, with_values=with_values))
        stack.enter_context(CallMode(tracer))
        for tensor in tree_leaves(example):
            if isinstance(tensor, Tensor):
                tracer.values[tensor] = Value(tuple(tensor.shape), (), is_weight=False)
        outputs = run_model(model, example)
        tracer.ledger.is_open = False
    if tracer.needs_values:
        raise ValueNeededError("the model went on without a value that it had asked for")
    tracer.keep_delicate(output_tensors(outputs))
    for tensor in output_tensors(outputs):
        if tensor in tracer.values:
            for layer in tracer.values[tensor].layers:
                recording.book.keep(layer.ids, "it is part of the model's output")


_TELLING = frozenset(
    {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.equal.default}
)
"""Operators that hand a value to Python."""


def _same_elements(
    tensor: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> bool:
    """Whether new strides lead to the same elements as the old ones.

    Pooling to 1 x 1 changes strides so in channels last.
    """
    steps = zip(tensor.stride(), stride, tensor.shape, strict=False)
    return (
        tuple(size) == tensor.shape
        and all(old == new for old, new, length in steps if length > 1)
        and offset in (None, tensor.storage_offset())
    )


class _OperatorMode(TorchDispatchMode):
    """Sees every ATen operator and applies its rule."""

    def __init__(self, tracer: Tracer, *, with_values: bool) -> None:
        super().__init__()
        self.tracer = tracer
        self.stand_ins = None if with_values else StandIns(tracer)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():
            # Without autograd, composite operators (linear, conv2d) arrive whole.
            with self:
                if (parts := func.decompose(*args, **kwargs)) is not NotImplemented:
                    return parts
        if func is torch.ops.aten.as_strided_.default and _same_elements(*args, **kwargs):
            return func(*args, **kwargs)
        result = (
            func(*args, **kwargs) if self.stand_ins is None else self.stand_ins.compute(func, args, kwargs)
        )
        if func in _TELLING:
            self.tracer.note_branch(args[0])
        self.tracer.note_operator(moves_data=only_moves_data(func))
        apply_rule(Call(self.tracer, func, args, kwargs, result))
        return result


@contextmanager
def _module_names(model: nn.Module, tracer: Tracer) -> Iterator[None]:
    names = {module: name for name, module in model.named_modules()}

    def enter(module: nn.Module, args: Any) -> None:
        if module in names:
            tracer.modules.append(names[module])

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if module in names and names[module] in tracer.modules:
            tracer.leave_module(names[module])

    first = nn.modules.module.register_module_forward_pre_hook(enter)
    second = nn.modules.module.register_module_forward_hook(leave)
    try:
        yield
    finally:
        first.remove()
        second.remove()


@contextmanager
def _traced_state(model: nn.Module, tracer: Tracer) -> Iterator[None]:
    """Inside, the integers that modules remember are traced, and buffers are copies."""
    with attributes_kept(model):
        for name, parameter in model.named_parameters(remove_duplicate=False):
            tracer.note_weight(name, parameter)
        copies: dict[int, Tensor] = {}
        for path, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = borrowed = copies.setdefault(id(buffer), buffer.clone())
                    if buffer.is_floating_point():
                        tracer.note_weight(f"{path}.{name}" if path else name, borrowed)
            for name, held in list(vars(module).items()):
                vars(module)[name] = (
                    _traced_settings(held, path, name, tracer)
                    if holds_settings(held)
                    else _traced_attribute(held, path, name, tracer)
                )
        yield


def _traced_settings(held: Any, path: str, name: str, tracer: Tracer) -> Any:
    """A module's own copy of its configuration, with traced integers."""
    own = copy.copy(held)
    for field, number in list(vars(own).items()):
        vars(own)[field] = _traced_attribute(number, path, f"{name}.{field}", tracer)
    return own


def _traced_attribute(number: Any, path: str, name: str, tracer: Tracer) -> Any:
    def trace(value: int, index: int | None) -> TracedInt:
        attribute = Attribute(path, name, index)
        tracer.recording.originals[attribute] = value
        return TracedInt(value, attribute, tracer.ledger)

    if name.startswith("__") or isinstance(number, bool):
        return number
    if type(number) is int:
        return trace(number, None)
    if type(number) in (tuple, list) and number and all(type(item) is int for item in number):
        return type(number)(trace(item, index) for index, item in enumerate(number))
    return number
