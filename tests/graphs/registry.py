"""A list of small nets with one structural pattern each.

A net is a decorated function without arguments that returns a model and an example input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Net = tuple[nn.Module, Tensor | tuple[Any, ...] | dict[str, Any]]

GRAPHS: dict[str, Graph] = {}


@dataclass(frozen=True, slots=True)
class Graph:
    """One pattern, and what may be demanded of it."""

    name: str
    function: Callable[[], Net]

    expect_cut: bool
    """Whether something can certainly be removed."""

    reason: str
    """What can be removed; or why nothing certainly can."""

    on_meta: bool
    """Whether the forward pass runs on the meta device, where no value is known."""

    streams: bool = False
    """Whether it is inspected with `streams=True`."""

    def build(self) -> Net:
        """The model and its example, equal at every call; the global random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.function()


def graph(
    *, expect_cut: bool, reason: str, on_meta: bool = True, streams: bool = False
) -> Callable[[Callable[[], Net]], Callable[[], Net]]:
    """Register the decorated function under its own name."""

    def register(function: Callable[[], Net]) -> Callable[[], Net]:
        name = function.__name__
        if name in GRAPHS:
            raise ValueError(f"there is already a net {name!r}. Give this one another name.")
        GRAPHS[name] = Graph(
            name=name,
            function=function,
            expect_cut=expect_cut,
            reason=reason,
            on_meta=on_meta,
            streams=streams,
        )
        return function

    return register
