"""Functions as graphs of torch.fx: takes a function without branches, gives what a pickle can hold.

A pickled graph is text that torch reads back by itself, so a model that holds one opens without this library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import fx, nn


def as_graph(function: Callable[..., Any]) -> fx.GraphModule:
    """The function as a module of torch's own.

    It must not branch; what may be one or the other is looked up in a dict of graphs that it is given.
    """
    return fx.GraphModule(nn.Module(), fx.Tracer().trace(function), class_name="Graph")


def give_forward(module: nn.Module, graph: fx.GraphModule, *known: Any) -> None:
    """Let a graph compute what the module's `forward` did, from the module, `known` and the inputs.

    The module stays what it is, with its class, its hooks and the names of its parameters.
    """
    vars(module)["forward"] = partial(graph, module, *known)


def given_forward(module: nn.Module) -> tuple[Any, ...] | None:
    """What `give_forward` was told besides the graph, also of a model from a pickle; None if it was not."""
    forward = vars(module).get("forward")
    if not isinstance(forward, partial) or not isinstance(forward.func, fx.GraphModule):
        return None
    return forward.args[1:] if forward.args and forward.args[0] is module else None


def take_forward_back(module: nn.Module) -> None:
    """Let the module's class compute again."""
    vars(module).pop("forward", None)
