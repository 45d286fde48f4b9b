"""Methods that compute what `forward` computes in another way: an exporter may put one in its place.

Ultralytics exports `C2f` with `forward_split`, which reads a size that `forward` never looks at. Such methods
run along with the recorded model, so that the sizes they read follow a cut like all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.execution.comparison import relative_difference
from trainonce.execution.forward import copied, output_tensors, run_model
from trainonce.execution.restoring import attributes_kept, buffers_kept
from trainonce.structure.channels import Example
from trainonce.tracing.state.tracer import Tracer

_SAME = 1e-4
"""Largest difference, relative to the output's scale, between two ways to compute the same in float32."""


def find_alternatives(model: nn.Module, example: Example) -> dict[nn.Module, list[str]]:
    """For each module, its methods that give on the example what `forward` gives, and read other sizes.

    Only methods named `forward_...` are tried. The model is left as it was, and runs only if it has one.
    """
    candidates = {module: names for module in model.modules() if (names := _candidates(module))}
    found: dict[nn.Module, list[str]] = {}
    if not candidates:
        return found
    given: dict[nn.Module, list[Any]] = {module: [] for module in candidates}

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        # Copies: `forward` may write to its input.
        given[module].append(copied((args, kwargs)))

    def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        args, kwargs = given[module].pop()
        agreeing = [name for name in candidates[module] if _agrees(module, name, args, kwargs, output)]
        found[module] = [name for name in agreeing if name in found.get(module, agreeing)]

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(buffers_kept(model))
        stack.enter_context(attributes_kept(model))
        for module in candidates:
            stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(leave, with_kwargs=True).remove)
        with suppress(Exception):
            run_model(model, copied(example))
    return {module: names for module, names in found.items() if names}


@contextmanager
def running_along(alternatives: Mapping[nn.Module, Sequence[str]], tracer: Tracer) -> Iterator[None]:
    """Inside, each alternative runs before the method it could stand for; what it computes is dropped."""

    def run(module: nn.Module, args: Any, kwargs: Any) -> None:
        recording, counts_cost = tracer.recording, tracer.counts_cost
        used, tracer.counts_cost = set(recording.used), False
        depth = len(tracer.modules)
        for name in alternatives[module]:
            # One that asks for values ends the run later: see `Tracer.refuse`.
            with suppress(Exception):
                inputs, named = copied((args, kwargs))
                getattr(module, name)(*inputs, **named)
            del tracer.modules[depth:]
        recording.used, tracer.counts_cost = used, counts_cost

    with ExitStack() as stack:
        for module in alternatives:
            stack.callback(module.register_forward_pre_hook(run, with_kwargs=True).remove)
        yield


def _candidates(module: nn.Module) -> list[str]:
    """The methods that read an integer of the module which `forward` does not."""
    if isinstance(module, torch.jit.ScriptModule):
        return []
    sizes = {
        name
        for name, value in vars(module).items()
        for number in (value if isinstance(value, tuple | list) else [value])
        if type(number) is int and number > 1
    }
    ways = _other_ways(type(module), _code_of(module.forward)) if sizes else ()
    return [name for name, reads in ways if not sizes.isdisjoint(reads)]


@lru_cache(maxsize=1024)
def _other_ways(kind: type[nn.Module], forward: CodeType | None) -> tuple[tuple[str, frozenset[str]], ...]:
    """Methods of a class that take what `forward` takes, with the names that they read and it doesn't.

    Those that `forward` calls run anyway.
    """
    known = _names_in(forward)
    codes = {name: _code_of(getattr(kind, name)) for name in dir(kind) if name.startswith("forward_")}
    return tuple(
        (name, _names_in(code) - known)
        for name, code in codes.items()
        if code is not None and name not in known and _inputs_of(code) == _inputs_of(forward)
    )


def _code_of(function: Any) -> CodeType | None:
    """The code of a function or method in Python; None of all others."""
    return getattr(function, "__code__", None)


def _inputs_of(code: CodeType | None) -> tuple[str, ...]:
    return () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _names_in(code: CodeType | None) -> frozenset[str]:
    """The names that a function reads, also in the functions inside it."""
    if code is None:
        return frozenset()
    inside = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*map(_names_in, inside))


def _agrees(module: nn.Module, name: str, args: Any, kwargs: Any, output: Any) -> bool:
    """Whether a method gives what `forward` gave; on the meta device, whether it has the same shapes."""
    try:
        inputs, named = copied((args, kwargs))
        ours, theirs = output_tensors(getattr(module, name)(*inputs, **named)), output_tensors(output)
    except Exception:
        return False
    if not theirs or [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return False
    return any(map(_is_meta, theirs)) or relative_difference(theirs, ours) <= _SAME


def _is_meta(tensor: Tensor) -> bool:
    return tensor.is_meta
