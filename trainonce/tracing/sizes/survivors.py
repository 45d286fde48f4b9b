"""What is left of each recorded tensor under a cut, and what calls gave before it."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from torch import Tensor

from trainonce.tracing.state.expressions import AxisSize
from trainonce.tracing.state.labels import Layer, Value


class Replays:
    """Results of calls on numbered elements, remembered while there is room."""

    MOST_ELEMENTS = 10_000_000

    def __init__(self) -> None:
        """Nothing remembered yet."""
        self._known: dict[Hashable, list[Tensor]] = {}
        self._num_elements = 0

    def recall(self, question: Hashable, run: Callable[[], list[Tensor]]) -> list[Tensor]:
        """What `run` gave when the question was asked before; the oldest answers are forgotten first."""
        if question not in self._known:
            self._known[question] = run()
            self._num_elements += sum(map(Tensor.numel, self._known[question]))
            while self._num_elements > self.MOST_ELEMENTS and len(self._known) > 1:
                self._num_elements -= sum(map(Tensor.numel, self._known.pop(next(iter(self._known)))))
        return self._known[question]


class Survivors:
    """Which positions of each recorded tensor survive one choice of channels."""

    def __init__(self, alive: Tensor, replays: Replays) -> None:
        """`alive` has one entry per label, the first of them for labels that can't be cut."""
        self.replays = replays
        self._alive_label = alive
        self._known: dict[int, list[Tensor | None]] = {}
        self._known_layers: dict[int, tuple[Tensor, bool]] = {}

    def of_layer(self, layer: Layer) -> Tensor:
        """For each entry of a layer, whether it is alive."""
        return self._of_layer(layer)[0]

    def loses(self, layer: Layer) -> bool:
        """Whether any entry of a layer is gone."""
        return self._of_layer(layer)[1]

    def _of_layer(self, layer: Layer) -> tuple[Tensor, bool]:
        if id(layer) not in self._known_layers:
            # Labels that are tied belong to the same channel: no need to look for their roots.
            alive = self._alive_label[layer.ids.abs()]
            self._known_layers[id(layer)] = (alive, not bool(alive.all()))
        return self._known_layers[id(layer)]

    def of_value(self, value: Value) -> list[Tensor | None]:
        """For each axis, which positions are alive; None where all are."""
        if id(value) not in self._known:
            axes: list[Tensor | None] = [None] * len(value.shape)
            for layer in value.layers:
                alive, loses = self._of_layer(layer)
                for axis in layer.varying if loses else ():
                    others = [other for other in range(alive.dim()) if other != axis]
                    here = alive.amax(dim=others).expand(value.shape[axis]) if others else alive
                    if not bool(here.all()):
                        known = axes[axis]
                        axes[axis] = here if known is None else known & here
            self._known[id(value)] = axes
        return self._known[id(value)]

    def size(self, leaf: AxisSize) -> int:
        """The size of an axis after the cut."""
        alive = self.of_value(leaf.value)[leaf.axis]
        return leaf.value.shape[leaf.axis] if alive is None else int(alive.sum())

    def is_cut(self, value: Value) -> bool:
        """Whether the tensor loses anything."""
        return any(alive is not None for alive in self.of_value(value))
