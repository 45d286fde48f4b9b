"""What a trainer calls the model with: its step is started, and ended where it reaches the model."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.execution.restoring import modes_kept
from trainonce.structure.channels import Example

_ROWS = 2
"""Rows of a batch that an example has: enough to see which axis is the batch, and quick to inspect."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelCall:
    """One call of a module."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def as_example(self) -> Example:
        """The inputs, with few rows if all tensors have the same number of them."""
        if not self.kwargs:
            return tuple(_with_few_rows(list(self.args)))
        bound = inspect.signature(self.module.forward).bind_partial(*self.args, **self.kwargs)
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                raise PrunerError(
                    f"{type(self.module).__name__} is called with a list of inputs and with keywords. Pass "
                    "example= as it should be inspected."
                )
            named.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
        return dict(zip(named, _with_few_rows(list(named.values())), strict=True))


class _Reached(Exception):
    """The model has been reached."""


def first_call(modules: nn.Module, step: Callable[[], Any]) -> ModelCall | None:
    """The first call of a module among `modules` and its parts that `step` makes; None if it makes none.

    The call itself is not made, and nothing after it. What was drawn before it is drawn again later.
    """
    found: list[ModelCall] = []

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.append(ModelCall(module, args, kwargs))
        raise _Reached

    hooks = [
        module.register_forward_pre_hook(stop, with_kwargs=True, prepend=True) for module in modules.modules()
    ]
    try:
        with modes_kept(modules), streams_kept(), torch.no_grad():
            step()
    except _Reached:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


@contextmanager
def streams_kept() -> Iterator[None]:
    """Restore the random streams of Python and numpy, which other libraries draw from."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _with_few_rows(values: list[Any]) -> list[Any]:
    tensors = [value for value in values if isinstance(value, Tensor)]
    if any(isinstance(value, list | tuple | dict) for value in values):
        # What is inside may belong to single rows.
        return values
    if any(tensor.dim() == 0 for tensor in tensors) or len({len(tensor) for tensor in tensors}) != 1:
        return values
    return [value[:_ROWS] if isinstance(value, Tensor) else value for value in values]
