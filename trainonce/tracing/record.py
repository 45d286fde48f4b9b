"""Run the model once as it is, and let channel labels flow with the data.

Two modes watch the run: one sees every ATen operator and moves labels (`rules`), one sees the calls as the user wrote
them and notes where their sizes come from (`sizes`). No copy of the model, no graph, no export: what runs is traced.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from trainonce.channels import Example
from trainonce.execution import output_tensors, run_model
from trainonce.tracing.expressions import Attribute, AxisSize, Ledger, Operation, TracedInt, leaves_of, map_leaves, source_of
from trainonce.tracing.labels import LabelBook, Layer, Slot, Value
from trainonce.tracing.rules import MOVEMENT, Call, apply_rule

OPAQUE = {torch.nn.functional.multi_head_attention_forward}
"""Functions that compute sizes inside from arguments they check against each other."""

RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}

CREATION = set("zeros ones empty rand randn new_zeros new_ones new_empty".split())

SIZE_FREE = set("to float half double type type_as contiguous clone detach permute transpose unsqueeze swapaxes movedim flip cat concat stack __get__".split())
"""Calls that move data without naming any size: a cut can't upset them."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A contraction as it was seen: coefficient, one size per letter, and the layers on those letters."""

    where: str
    coefficient: int
    sizes: dict[str, int]
    layers: tuple[tuple[Layer, str], ...]
    """Each layer with the letters of its axes."""


@dataclass(frozen=True, slots=True, eq=False)
class Movement:
    """A call that only moves data, with the sources of its sizes, to be replayed under a cut."""

    where: str
    function: Callable[..., Any]
    arguments: Any
    """The call's (args, kwargs) with tensors replaced by Values and integers by their sources."""

    results: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A size argument that must equal the number of live entries of some labels (a conv's `groups`)."""

    where: str
    source: Any
    layer: Layer
    what: str


@dataclass(eq=False)
class Recording:
    """All that one or more runs of a model have shown."""

    book: LabelBook = field(default_factory=LabelBook)
    slots: dict[Slot, Tensor] = field(default_factory=dict)
    """Labels of every axis of every parameter and buffer that was used."""

    used: set[str] = field(default_factory=set)
    """Parameters and buffers that an operator has read."""

    writers: set[Slot] = field(default_factory=set)
    readers: set[Slot] = field(default_factory=set)
    followers: set[Slot] = field(default_factory=set)
    products: list[Product] = field(default_factory=list)
    movements: list[Movement] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    spread: list[Layer] = field(default_factory=list)
    """Layers that vary along more than one axis: each must lose a product set."""

    ledgers: list[Ledger] = field(default_factory=list)
    originals: dict[Attribute, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def record(model: nn.Module, example: Example, recording: Recording, *, counts_cost: bool) -> None:
    """Run the model in its present mode and add what it shows to `recording`; the model is left as it was."""
    tracer = Tracer(model, recording, counts_cost=counts_cost)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(_borrowed_state(model, tracer))
        stack.enter_context(_module_names(model, tracer))
        stack.enter_context(_OperatorMode(tracer))
        stack.enter_context(_CallMode(tracer))
        for tensor in tree_leaves(example):
            if isinstance(tensor, Tensor):
                tracer.values[tensor] = Value(tuple(tensor.shape), (), is_weight=False)
        outputs = run_model(model, example)
        tracer.ledger.is_open = False
    for tensor in output_tensors(outputs):
        if tensor in tracer.values:
            for layer in tracer.values[tensor].layers:
                recording.book.keep(layer.ids, "it is part of the model's output")


class Tracer:
    """The state of one recorded run: which tensor carries which labels."""

    def __init__(self, model: nn.Module, recording: Recording, *, counts_cost: bool) -> None:
        """Ready to record one run of `model` into `recording`."""
        self.recording = recording
        self.book = recording.book
        self.counts_cost = counts_cost
        self.values: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self.aliases: dict[int, list[weakref.ref[Tensor]]] = defaultdict(list)
        self.modules: list[str] = []
        self.only_movement = True
        self.skip_cost = False
        self.call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = None
        self.ledger = Ledger(where=self.where)
        self.weights: dict[int, tuple[str, Tensor]] = {}
        self.buffers: set[Slot] = set()
        recording.ledgers.append(self.ledger)

    def where(self) -> str:
        """The module that is running."""
        return self.modules[-1] if self.modules else ""

    def note_weight(self, name: str, tensor: Tensor) -> None:
        """Make a parameter or buffer known by name; the same memory under two names is one weight."""
        self.weights.setdefault(id(tensor), (name, tensor))

    def note_use(self, tensors: list[Tensor]) -> None:
        """Remember which weights an operator has read."""
        self.recording.used |= {self.weights[id(tensor)][0] for tensor in tensors if id(tensor) in self.weights}

    def value(self, tensor: Tensor) -> Value | None:
        """What is known of a tensor; None for constants."""
        known = self.values.get(tensor)
        if known is None and id(tensor) in self.weights:
            known = self._label_weight(*self.weights[id(tensor)])
            self.values[tensor] = known
        return known

    def _label_weight(self, name: str, tensor: Tensor) -> Value:
        layers = []
        for axis, size in enumerate(tensor.shape):
            slot = (name, axis)
            if size < 2:
                continue
            if slot not in self.recording.slots:
                self.recording.slots[slot] = self.book.fresh(size)
            shape = [size if other == axis else 1 for other in range(tensor.dim())]
            ids = self.recording.slots[slot].reshape(shape)
            # Training can't drive a buffer to zero: it is aligned with its channel, but not silent.
            is_buffer = not isinstance(tensor, nn.Parameter)
            layers.append(Layer(-ids if is_buffer else ids, frozenset({slot})))
            self.buffers |= {slot} if is_buffer else set()
        return Value(tuple(tensor.shape), tuple(layers), is_weight=True)

    def note_product(self, coefficient: int, sizes: dict[str, int], layers: tuple[tuple[Layer, str], ...]) -> None:
        """Write down what a contraction costs."""
        if self.counts_cost and not self.skip_cost:
            self.recording.products.append(Product(self.where(), coefficient, sizes, layers))

    def note_demand(self, keyword: str, position: int, layer: Layer) -> None:
        """Write down that an argument of the user's call must equal the number of live labels."""
        if self.call is None:
            return
        _, args, kwargs = self.call
        number = args[position] if position < len(args) else kwargs.get(keyword)
        self.recording.demands.append(Demand(self.where(), source_of(number), layer, "the number of groups"))

    @property
    def is_opaque(self) -> bool:
        """Whether sizes are being computed where they can't be seen."""
        return self.call is not None and self.call[0] in OPAQUE

    def remember(self, tensor: Tensor, value: Value) -> None:
        """Attach labels to the result of an operator."""
        if 0 in value.shape:
            value = Value(value.shape, (), value.is_weight)
        self.values[tensor] = value
        self.aliases[tensor.untyped_storage()._cdata].append(weakref.ref(tensor))
        self.recording.spread += [layer for layer in value.layers if len(layer.varying) > 1]

    def _only_less_silent(self, old: Value, new: Value, others: list[Tensor]) -> bool:
        """If the labels are the same as before, tell the other views which of them are no longer silent."""
        if len(old.layers) != len(new.layers):
            return False
        pairs = [(self.book.roots(a.ids), self.book.roots(b.ids)) for a, b in zip(old.layers, new.layers, strict=True)]
        if not all(torch.equal(a.abs(), b.abs()) for a, b in pairs):
            return False
        loud = torch.unique(torch.cat([-b[(b < 0) & (a > 0)].flatten() for a, b in pairs]))
        for other in others if loud.numel() else ():
            known = self.values.get(other)
            if known is not None:
                layers = [layer.with_ids(torch.where(torch.isin(self.book.roots(layer.ids).abs(), loud), -layer.ids.abs(), layer.ids)) for layer in known.layers]
                self.values[other] = Value(known.shape, tuple(layers), known.is_weight)
        return True

    def overwrite(self, tensor: Tensor, value: Value, operator_name: str) -> None:
        """Attach new labels to a tensor changed in place; what else looks at its memory must not be misled."""
        old = self.values.get(tensor)
        labelled = value.layers or (old is not None and old.layers)
        family = self.aliases[tensor.untyped_storage()._cdata] if labelled else ()
        others = [other for ref in family if (other := ref()) is not None and other is not tensor and _overlap(tensor, other)]
        if others and labelled and old is not None and self._only_less_silent(old, value, others):
            pass
        elif others and labelled:
            reason = f"{operator_name} in {self.where() or 'the model'} changes it in place through a view"
            for layer in (*value.layers, *(old.layers if old is not None else ())):
                self.book.keep(layer.ids, reason)
            for other in others:
                for layer in (known.layers if (known := self.values.get(other)) is not None else ()):
                    self.book.keep(layer.ids, reason)
        self.values[tensor] = value


def _overlap(left: Tensor, right: Tensor) -> bool:
    """Whether two views of the same memory share an element."""
    touched = torch.zeros(left.untyped_storage().nbytes() // left.element_size(), dtype=torch.bool)
    touched.as_strided(left.shape, left.stride(), left.storage_offset()).fill_(True)
    return bool(touched.as_strided(right.shape, right.stride(), right.storage_offset()).any())


class _OperatorMode(TorchDispatchMode):
    """Sees every ATen operator and applies its rule."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func not in MOVEMENT:
            self.tracer.only_movement = False
        apply_rule(Call(self.tracer, func, args, kwargs, result))
        return result


class _CallMode(TorchFunctionMode):
    """Sees calls as the user wrote them: hands out traced shapes and notes calls that only move data."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = self.tracer
        if func == torch.Tensor.shape.__get__ or func is torch.Tensor.size:
            return self._traced_size(func(*args, **kwargs), args, kwargs)
        if getattr(func, "__name__", "") == "__get__":
            return func(*args, **kwargs)
        tracer.only_movement = True
        tracer.call = (func, args, kwargs)
        with _disable_current_modes():
            before = map_leaves(lambda item: (tracer.value(item) or item) if isinstance(item, Tensor) else source_of(item), (args, kwargs))
        # The fused recurrent kernels hide the products that the layers are made of.
        with _without_fused_kernels() if func in RECURRENT else nullcontext():
            result = func(*args, **kwargs)
        tracer.call = None
        with _disable_current_modes():
            if getattr(func, "__name__", "") in CREATION and isinstance(result, Tensor):
                self._note_creation(func.__name__, before, result)
            elif tracer.only_movement:
                self._note_movement(func, before, result)
        return result

    def _traced_size(self, size: Any, args: Any, kwargs: Any) -> Any:
        value = self.tracer.value(args[0])
        if value is None:
            return size
        if isinstance(size, int):
            axis = args[1] if len(args) > 1 else kwargs["dim"]
            return TracedInt(size, AxisSize(value, int(axis) % len(value.shape)), self.tracer.ledger)
        return torch.Size([TracedInt(length, AxisSize(value, axis), self.tracer.ledger) for axis, length in enumerate(size)])

    def _note_creation(self, name: str, before: Any, result: Tensor) -> None:
        """A tensor made with sizes of other things gets labels of its own, to be tied to what it meets."""
        sizes = [item for item in leaves_of(before) if isinstance(item, int | Attribute | AxisSize | Operation) and not isinstance(item, bool)]
        if len(sizes) < result.dim() or all(isinstance(item, int) for item in sizes):
            return
        layers = []
        for axis, source in enumerate(sizes[: result.dim()]):
            if isinstance(source, int) or result.shape[axis] < 2:
                continue
            ids = self.tracer.book.fresh(result.shape[axis]).reshape([-1 if other == axis else 1 for other in range(result.dim())])
            layers.append(Layer(ids if name.endswith("zeros") else -ids))
            self.tracer.recording.demands.append(Demand(self.tracer.where(), source, layers[-1], "the size of a new tensor"))
        self.tracer.remember(result, Value(tuple(result.shape), tuple(layers), is_weight=False))

    def _note_movement(self, func: Any, before: Any, result: Any) -> None:
        tracer = self.tracer
        if getattr(func, "__name__", "") in SIZE_FREE or not any(isinstance(item, Value) and item.layers for item in leaves_of(before)):
            return
        results = [tracer.values.get(tensor) for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        if not results or any(value is None for value in results):
            return
        tracer.recording.movements.append(Movement(tracer.where(), func, before, tuple(value for value in results if value is not None)))


@contextmanager
def _without_fused_kernels() -> Iterator[None]:
    # torch.backends.mkldnn.flags warns about devices that aren't there.
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


@contextmanager
def _module_names(model: nn.Module, tracer: Tracer) -> Iterator[None]:
    names = {module: name for name, module in model.named_modules()}

    def enter(module: nn.Module, args: Any) -> None:
        if module in names:
            tracer.modules.append(names[module])

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if module in names and names[module] in tracer.modules:
            while tracer.modules.pop() != names[module]:
                pass

    first = nn.modules.module.register_module_forward_pre_hook(enter)
    second = nn.modules.module.register_module_forward_hook(leave)
    try:
        yield
    finally:
        first.remove()
        second.remove()


@contextmanager
def _borrowed_state(model: nn.Module, tracer: Tracer) -> Iterator[None]:
    """Trace the integers that modules remember, keep buffers from changing, and put everything back."""
    saved = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    try:
        for name, parameter in model.named_parameters(remove_duplicate=False):
            tracer.note_weight(name, parameter)
        for path, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = copied = buffer.clone()
                    if buffer.is_floating_point():
                        tracer.note_weight(f"{path}.{name}" if path else name, copied)
            for name, number in list(vars(module).items()):
                vars(module)[name] = _traced_attribute(number, path, name, tracer)
        yield
    finally:
        for module, attributes, buffers in saved:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)


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
