"""Norms whose mean runs over channels that can be cut: what makes the small norm compute the same.

With k of d channels alive, the others exactly zero,

    mean_d(x^2) = k/d mean_k(x^2),

so the norm of the k channels is the same module with its weight times (d/k)^power and its eps times d/k.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NormScale:
    """What one norm needs when its channels are cut."""

    module: str
    tensor: str
    """The parameter that is scaled, by its qualified name."""

    axis: int
    """The axis of the parameter that the channels are on."""

    offset: int
    """What the module adds to the parameter before it multiplies by it: 1 in `x * (1 + weight)`."""

    power: float
    """0.5 where a root of the mean divides (RMSNorm), 1 where the mean itself does (GRN)."""

    eps: str
    """The module's attribute that is added to the mean."""

    is_folded: bool = False
    """Whether the parameter itself was scaled; if not, the module scales it whenever it runs."""


def used_norms(norms: Iterable[NormScale], cut_axes: Iterable[tuple[str, int]]) -> tuple[NormScale, ...]:
    """Those whose channels are cut."""
    cut = set(cut_axes)
    return tuple(norm for norm in norms if (norm.tensor, norm.axis) in cut)
