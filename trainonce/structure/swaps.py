"""Modules that a cut leaves without what their own code demands: they compute in another way afterwards.

The module stays what it is; only its `forward` is replaced. `surgery.swaps` does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

ATTENTION = "attention"
"""`nn.MultiheadAttention`, whose heads no longer make up its width."""

LAYER_NORM = "layer_norm"
"""A LayerNorm that keeps its divisor: the channels that are gone still count as zeros."""

KINDS = (ATTENTION, LAYER_NORM)


@dataclass(frozen=True, slots=True)
class Swap:
    """One module that computes in another way once any of its tensors is cut."""

    module: str
    kind: str
    axis: int
    """The axis of the data that a LayerNorm runs over: -1 or 1. Attention has 0."""

    tensors: tuple[str, ...]
    """The parameters whose cut asks for it, by their qualified names."""


class _HasSwaps(Protocol):
    @property
    def swaps(self) -> tuple[Swap, ...]: ...


def cuts_streams(plans: Iterable[_HasSwaps]) -> bool:
    """Whether any of these plans takes channels from under a LayerNorm."""
    return any(swap.kind == LAYER_NORM for plan in plans for swap in plan.swaps)


def used_swaps(swaps: Iterable[Swap], cut_axes: Iterable[tuple[str, int]]) -> tuple[Swap, ...]:
    """Those whose tensors are cut."""
    cut = {tensor for tensor, _ in cut_axes}
    return tuple(swap for swap in swaps if not cut.isdisjoint(swap.tensors))
