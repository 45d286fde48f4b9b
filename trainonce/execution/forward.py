"""A user's model, run on any kind of example, also on the meta device, and the tensors in what it returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

LARGEST_CONSTANT = 1_000_000
"""Elements up to which the value of a constant on the meta device is computed as well."""

_CACHES = "transformers.cache_utils"
"""Key-value caches are the model's own memory, handed out for its next call: they shrink with its heads."""


def call_model(model: nn.Module, inputs: Any) -> Any:
    """The model's output on a tensor, a tuple of positional inputs, or a dict of keyword inputs."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def run_model(model: nn.Module, example: Any) -> Any:
    """What `call_model` gives, also on the meta device."""
    on_meta = any(parameter.is_meta for parameter in model.parameters())
    with _ConstantsOnMeta() if on_meta else nullcontext():
        return call_model(model, example)


def copied(example: Any) -> Any:
    """The example with its tensors copied: a model may write to its input."""
    return tree_map_only(Tensor, torch.clone, example)


def output_tensors(outputs: Any) -> list[Tensor]:
    """Every tensor in a model's output, looking into tuples, dicts, dataclasses and plain objects."""
    found: list[Tensor] = []
    seen: set[int] = set()
    waiting = [outputs]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Tensor):
            found.append(item)
            continue
        if item is None or isinstance(item, str | int | float | bool | nn.Module) or id(item) in seen:
            continue
        seen.add(id(item))
        if type(item).__module__ == _CACHES:
            continue
        if isinstance(item, dict):
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, Collection):
            waiting.extend(reversed(list(item)))
        else:
            slots = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting.extend(
                reversed(
                    [*getattr(item, "__dict__", {}).values(), *(getattr(item, name, None) for name in slots)]
                )
            )
    return found


class _ConstantsOnMeta(TorchDispatchMode):
    """Constants with values on the meta device, where nothing has one but models ask (`mask.all()`).

    Whatever is computed from constants alone is computed a second time on the CPU, and asked there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)]
        constant = all(not tensor.is_meta or tensor in self.known for tensor in tensors)
        if constant and func is torch.ops.aten._local_scalar_dense.default:
            return func(self._real(args[0]))
        result = func(*args, **kwargs)
        made = [item for item in tree_leaves(result) if isinstance(item, Tensor) and item.is_meta]
        if (
            constant
            and made
            and torch.Tag.nondeterministic_seeded not in func.tags
            and all(tensor.numel() <= LARGEST_CONSTANT for tensor in made)
        ):
            real_args, real_kwargs = tree_map(self._real, (args, kwargs))
            with _disable_current_modes():
                real = [
                    item for item in tree_leaves(func(*real_args, **real_kwargs)) if isinstance(item, Tensor)
                ]
            for tensor, value in zip(made, real, strict=True):
                self.known[tensor] = value
        return result

    def _real(self, item: Any) -> Any:
        if isinstance(item, torch.device) and item.type == "meta":
            return torch.device("cpu")
        return self.known[item] if isinstance(item, Tensor) and item.is_meta else item
