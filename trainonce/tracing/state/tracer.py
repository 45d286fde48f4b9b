"""The state of one recorded run.

Which tensor carries which labels, and what must be written down about it.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from trainonce.tracing.state.expressions import Ledger, source_of
from trainonce.tracing.state.labels import MOST_SPREAD_LABELS, Layer, Slot, Value
from trainonce.tracing.state.recording import Demand, Product, Recording

OPAQUE = frozenset({torch.nn.functional.multi_head_attention_forward})
"""Functions that compute sizes inside from arguments they check against each other."""


class ValueNeededError(Exception):
    """The model asks for a value that this run did not compute."""


@dataclass(eq=False)
class UserCall:
    """A call as the user wrote it, while it runs."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    only_moves_data: bool = True
    """Whether all operators that it has run so far only move data."""


class Tracer:
    """The state of one recorded run: which tensor carries which labels."""

    def __init__(self, recording: Recording, *, counts_cost: bool) -> None:
        """Ready to record one run into `recording`."""
        self.recording = recording
        self.book = recording.book
        self.counts_cost = counts_cost
        self.values: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self.hollow: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        """Tensors whose content was not computed."""
        self.delicate: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        """Tensors whose readers keep some layers, with these and the reason."""
        self.needs_values = False
        self.aliases: dict[int, list[weakref.ref[Tensor]]] = defaultdict(list)
        self.modules: list[str] = []
        self._call: UserCall | None = None
        self.ledger = Ledger(where=self.where)
        self.weights: dict[int, tuple[str, Tensor]] = {}
        self.buffers: set[Slot] = set()
        self.branching: set[str] = set()
        """Modules that have chosen a path by data and are still running."""
        recording.ledgers.append(self.ledger)

    def where(self) -> str:
        """The module that is running."""
        return self.modules[-1] if self.modules else ""

    @property
    def in_norm(self) -> bool:
        """Whether the module that is running is a norm whose mean may lose channels."""
        return self.where() in self.recording.norms

    @property
    def in_swap(self) -> bool:
        """Whether the module that is running computes in another way once it is cut."""
        return self.where() in self.recording.swaps

    @contextmanager
    def calling(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[UserCall]:
        """Inside, operators belong to this call of the user's."""
        self._call = call = UserCall(function, args, kwargs)
        try:
            yield call
        finally:
            self._call = None

    def note_operator(self, *, moves_data: bool) -> None:
        """Tell the user's call that an operator has run."""
        if self._call is not None and not moves_data:
            self._call.only_moves_data = False

    def note_weight(self, name: str, tensor: Tensor) -> None:
        """Make a parameter or buffer known by name; the same tensor under two names is one weight."""
        self.weights.setdefault(id(tensor), (name, tensor))

    def note_branch(self, tensor: Tensor) -> None:
        """Python is told a value that depends on the input.

        Other paths may exist, and read what is alive now.
        """
        value = self.value(tensor)
        if value is not None and not value.is_weight:
            alive = [layer for other in self.values.values() if not other.is_weight for layer in other.layers]
            self.recording.branches.setdefault(self.where(), []).extend(alive)
            self.branching.add(self.where())

    def refuse(self, what: str) -> NoReturn:
        """End a run that asks for what it did not compute.

        A model that swallows the exception is found out at the end.
        """
        self.needs_values = True
        raise ValueNeededError(f"{what} needs values that were not computed")

    def leave_module(self, name: str) -> None:
        """The innermost run of a module has ended."""
        while self.modules.pop() != name:
            pass
        self.branching.discard(name)

    def keep_delicate(self, tensors: Iterable[Tensor]) -> None:
        """Somebody looks at these tensors."""
        for tensor in tensors if len(self.delicate) else ():
            if (found := self.delicate.get(tensor)) is not None:
                for layer in found[0]:
                    self.book.keep(layer.ids, found[1])

    def note_use(self, tensors: list[Tensor]) -> None:
        """Remember which weights an operator has read."""
        self.recording.used |= {
            self.weights[id(tensor)][0] for tensor in tensors if id(tensor) in self.weights
        }

    def value(self, tensor: Tensor) -> Value | None:
        """What is known of a tensor; None for constants."""
        known = self.values.get(tensor)
        if known is None and id(tensor) in self.weights:
            # The watchers of the run would take the making of labels for a part of it.
            with _disable_current_modes():
                known = self._label_weight(*self.weights[id(tensor)])
            self.values[tensor] = known
        return known

    def _label_weight(self, name: str, tensor: Tensor) -> Value:
        known = self.recording.weights.get(name)
        if known is None or known.shape != tuple(tensor.shape):
            known = self.recording.weights[name] = self._fresh_labels(name, tensor)
        self.buffers |= (
            {slot for layer in known.layers for slot in layer.origins}
            if not isinstance(tensor, nn.Parameter)
            else set()
        )
        return known

    def _fresh_labels(self, name: str, tensor: Tensor) -> Value:
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
        return Value(tuple(tensor.shape), tuple(layers), is_weight=True)

    def note_product(
        self, coefficient: int, sizes: dict[str, int], layers: tuple[tuple[Layer, str], ...]
    ) -> None:
        """Write down what a contraction costs."""
        if self.counts_cost:
            self.recording.products.append(Product(self.where(), coefficient, sizes, layers))

    def note_demand(self, keyword: str, position: int, layer: Layer) -> None:
        """Write down that an argument of the user's call must equal the number of live labels."""
        if self._call is None:
            return
        args = self._call.args
        number = args[position] if position < len(args) else self._call.kwargs.get(keyword)
        self.recording.demands.append(Demand(self.where(), source_of(number), layer, "the number of groups"))

    @property
    def is_opaque(self) -> bool:
        """Whether sizes are being computed where they can't be seen."""
        return self._call is not None and self._call.function in OPAQUE

    def remember(self, tensor: Tensor, value: Value) -> None:
        """Attach labels to the result of an operator."""
        if 0 in value.shape:
            value = replace(value, layers=tuple(layer for layer in value.layers if layer.ids.numel()))
        value = self._bounded(value)
        self.values[tensor] = value
        self.aliases[tensor.untyped_storage()._cdata].append(weakref.ref(tensor))
        self.recording.spread += [layer for layer in value.layers if len(layer.varying) > 1]
        for module in self.branching if not value.is_weight else ():
            self.recording.branches[module] += value.layers

    def _bounded(self, value: Value) -> Value:
        """Without layers that cost more than they can tell: their labels are kept."""
        wide = [
            layer
            for layer in value.layers
            if layer.ids.numel() > MOST_SPREAD_LABELS and len(layer.varying) > 1
        ]
        if not wide:
            return value
        for layer in wide:
            self.book.keep(layer.ids, f"{self.where() or 'the model'} mixes it with other axes")
        return replace(value, layers=tuple(layer for layer in value.layers if layer not in wide))

    def _only_less_silent(self, old: Value, new: Value, others: list[Tensor]) -> bool:
        """If the labels are the same as before, tell the other views which of them are no longer silent."""
        if len(old.layers) != len(new.layers):
            return False
        pairs = [
            (self.book.roots(a.ids), self.book.roots(b.ids))
            for a, b in zip(old.layers, new.layers, strict=True)
        ]
        if not all(torch.equal(a.abs(), b.abs()) for a, b in pairs):
            return False
        loud = torch.unique(torch.cat([-b[(b < 0) & (a > 0)].flatten() for a, b in pairs]))
        for other in others if loud.numel() else ():
            known = self.values.get(other)
            if known is not None:
                layers = [
                    layer.with_ids(
                        torch.where(
                            torch.isin(self.book.roots(layer.ids).abs(), loud), -layer.ids.abs(), layer.ids
                        )
                    )
                    for layer in known.layers
                ]
                self.values[other] = Value(known.shape, tuple(layers), known.is_weight)
        return True

    def overwrite(self, tensor: Tensor, value: Value, operator_name: str) -> None:
        """Attach new labels to a tensor changed in place.

        What else looks at its memory must not be misled.
        """
        old = self.values.get(tensor)
        labelled = value.layers or (old is not None and old.layers)
        family = self.aliases[tensor.untyped_storage()._cdata] if labelled else ()
        others = [
            other
            for ref in family
            if (other := ref()) is not None and other is not tensor and _overlap(tensor, other)
        ]
        if others and labelled and old is not None and self._only_less_silent(old, value, others):
            pass
        elif others and labelled:
            reason = f"{operator_name} in {self.where() or 'the model'} changes it in place through a view"
            for layer in (*value.layers, *(old.layers if old is not None else ())):
                self.book.keep(layer.ids, reason)
            for other in others:
                for layer in known.layers if (known := self.values.get(other)) is not None else ():
                    self.book.keep(layer.ids, reason)
        self.values[tensor] = value


def _overlap(left: Tensor, right: Tensor) -> bool:
    """Whether two views of the same memory share an element."""
    touched = torch.zeros(left.untyped_storage().nbytes() // left.element_size(), dtype=torch.bool)
    touched.as_strided(left.shape, left.stride(), left.storage_offset()).fill_(True)
    return bool(touched.as_strided(right.shape, right.stride(), right.storage_offset()).any())
