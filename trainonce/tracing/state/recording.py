"""What recorded runs of a model have shown, as data.

Labels of weights, products, movements, and demands on sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from trainonce.structure.norms import NormScale
from trainonce.structure.swaps import Swap
from trainonce.tracing.state.expressions import Attribute, Ledger
from trainonce.tracing.state.labels import LabelBook, Layer, Slot, Value


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
    followers: set[Slot] = field(default_factory=set)
    products: list[Product] = field(default_factory=list)
    movements: list[Movement] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    spread: list[Layer] = field(default_factory=list)
    """Layers that vary along more than one axis: each must lose a product set."""

    branches: dict[str, list[Layer]] = field(default_factory=dict)
    """Modules that branched on data, with the labels that were alive then or made until they returned."""

    weights: dict[str, Value] = field(default_factory=dict)
    """The labels of every parameter and buffer that was used."""

    answers: dict[Hashable, tuple[list[tuple[Layer, ...]], list[Value]]] = field(default_factory=dict)
    """The labels of an operator's results, by all that its rule looks at, and what must stay alive for it."""

    alternatives: Mapping[nn.Module, Sequence[str]] = field(default_factory=dict)
    """For each module, its methods that can stand in for `forward`."""

    norms: Mapping[str, NormScale] = field(default_factory=dict)
    """Modules whose mean over channels may lose some, by name."""

    swaps: Mapping[str, Swap] = field(default_factory=dict)
    """Modules that compute in another way once they are cut, by name."""

    cuts_streams: bool = False
    """Whether channels under a LayerNorm may go."""

    multiples: list[tuple[Layer, int]] = field(default_factory=list)
    """Layers of which a multiple must stay, because an operator takes no other sizes."""

    ledgers: list[Ledger] = field(default_factory=list)
    originals: dict[Attribute, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
