"""Channel labels: integers that name a position on an axis of a parameter, tied together by operators.

A *layer* of labels belongs to a tensor: it has as many axes as the tensor, and size 1 where it doesn't vary.
The sign says whether the channel is silent: `+a` is zero when the writers of `a` are zero, `-a` is aligned
with `a` but not zero, and 0 can't be cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Slot = tuple[str, int]
"""A parameter's or buffer's name, and an axis of it."""

KERNEL = "it is the kernel of a convolution"
"""The one reason that goes without saying: axes kept for it are not reported."""

_MANY = 4096
"""With more pairs of labels than this, it pays to remove duplicates first."""


MOST_SPREAD_LABELS = 65_536
"""Labels of one layer that varies along several axes.

Heads and their dimensions are fewer; positions in an image (masks of attention windows) may be millions.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Labels of one tensor, varying along one or more of its axes."""

    ids: Tensor
    origins: frozenset[Slot] = frozenset()
    """Where the labels come from, as long as the tensor is computed from weights alone."""

    is_repeat: bool = False
    """Labels of an axis that holds one thing many times; they give way to any others on the same axis."""

    is_table: bool = False
    """Labels of a tensor computed from buffers alone: seen only by data that varies along the same axes."""

    @property
    def varying(self) -> tuple[int, ...]:
        """The axes along which the labels differ."""
        return tuple(axis for axis, size in enumerate(self.ids.shape) if size > 1)

    def with_ids(self, ids: Tensor) -> Layer:
        """The same layer after its labels moved."""
        return replace(self, ids=ids)

    def not_silent(self) -> Layer:
        """The same labels, no longer zero with their writers."""
        return self.with_ids(-self.ids.abs())


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What is known of one tensor while the model runs."""

    shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    is_weight: bool
    """Computed from parameters and constants alone, so the same for every input."""


class LabelBook:
    """Which labels are tied (union-find), and which may not be cut, with the reason in words."""

    def __init__(self) -> None:
        """An empty book; label 0 stands for 'can't be cut'."""
        self.num_labels = 1
        """How many labels there are, 0 included."""

        self._parent = torch.arange(1024)
        self._reason_of = torch.zeros(1024, dtype=torch.long)
        self.num_ties = 0
        self._reasons: list[str] = [""]
        self._reason_ids: dict[str, int] = {"": 0}

    def fresh(self, count: int) -> Tensor:
        """New labels, tied to nothing."""
        start = self.num_labels
        self.num_labels += count
        if self.num_labels > self._parent.numel():
            room = max(self.num_labels, 2 * self._parent.numel())
            self._parent = torch.cat([self._parent, torch.arange(self._parent.numel(), room)])
            self._reason_of = torch.cat(
                [self._reason_of, torch.zeros(room - self._reason_of.numel(), dtype=torch.long)]
            )
        return torch.arange(start, self.num_labels)

    def roots(self, ids: Tensor) -> Tensor:
        """The representative of each label, with the sign it came with."""
        return self._find(ids.abs()).mul_(ids.sign())

    def _find(self, labels: Tensor) -> Tensor:
        """The representative of each label, for labels without a sign."""
        flat = labels.flatten()
        root = self._parent.index_select(0, flat)
        above = self._parent.index_select(0, root)
        if not torch.equal(above, root):
            while not torch.equal(above, root):
                root, above = above, self._parent.index_select(0, above)
            self._parent[flat] = root
        return root.view(labels.shape)

    def tie(self, left: Tensor, right: Tensor, reason: str) -> None:
        """Let labels that meet live and die together; one that meets 0 is kept."""
        left, right = self._find(left.abs()), self._find(right.abs())
        differ = left != right
        if not bool(differ.any()):
            return
        left, right = left.expand(differ.shape)[differ], right.expand(differ.shape)[differ]
        lonely = (left == 0) | (right == 0)
        if bool(lonely.any()):
            self.keep((left + right)[lonely], reason)
            left, right = left[~lonely], right[~lonely]
        if left.numel() > _MANY:
            # One number per pair: a one-dimensional unique is many times faster than one over columns.
            pairs = torch.unique(left * self.num_labels + right)
            left, right = pairs // self.num_labels, pairs % self.num_labels
        while left.numel():
            self.num_ties += 1
            # Where a root is written more than once the smallest wins; the loop ties the rest.
            self._parent.scatter_reduce_(
                0, torch.maximum(left, right), torch.minimum(left, right), reduce="amin"
            )
            left, right = self._find(left), self._find(right)
            differ = left != right
            left, right = left[differ], right[differ]

    def tie_along(self, layer: Layer, axes: Iterable[int], reason: str) -> Layer | None:
        """Tie all labels along `axes`.

        What remains varies along the others, or nothing (then the labels are kept).
        """
        ids = layer.ids
        for axis in axes:
            if ids.shape[axis] == 1:
                continue
            first = ids.narrow(axis, 0, 1)
            self.tie(ids, first, reason)
            silent = (ids >= 0).all(dim=axis, keepdim=True)
            ids = torch.where(silent, first.abs(), -first.abs())
        if ids.numel() == 1:
            self.keep(layer.ids, reason)
            return None
        return layer.with_ids(ids)

    def keep(self, ids: Tensor, reason: str) -> None:
        """Say that labels may not be cut, unless a reason was given before."""
        if reason not in self._reason_ids:
            self._reason_ids[reason] = len(self._reasons)
            self._reasons.append(reason)
        roots = self._find(ids.abs()).flatten()
        roots = roots[(roots != 0) & (self._reason_of[roots] == 0)]
        self._reason_of[roots] = self._reason_ids[reason]

    def compress(self, ids: Tensor) -> Tensor:
        """Canonical labels, with size 1 along every axis on which they don't vary."""
        ids = self.roots(ids)
        for axis in range(ids.dim()):
            if ids.shape[axis] > 1 and bool((ids == ids.narrow(axis, 0, 1)).all()):
                ids = ids.narrow(axis, 0, 1)
        return ids

    def reason_ids(self) -> Tensor:
        """For every label, the number of the reason its tied labels are kept for (0: none)."""
        roots = self.roots(torch.arange(self.num_labels))
        reasons = self._reason_of[: self.num_labels]
        given = reasons != 0
        none = len(self._reasons)
        first = torch.full((self.num_labels,), none)
        first.scatter_reduce_(0, roots[given], reasons[given], reduce="amin")
        first[first == none] = 0
        return first[roots]

    def reason(self, number: int) -> str:
        """The words of a reason."""
        return self._reasons[number]


def align(layer: Layer, num_axes: int) -> Layer:
    """The layer with axes of size 1 put in front, as broadcasting does."""
    missing = num_axes - layer.ids.dim()
    return layer.with_ids(layer.ids.reshape((1,) * missing + layer.ids.shape)) if missing else layer


def reshape_ids(ids: Tensor, old_shape: Sequence[int], new_shape: Sequence[int]) -> Tensor:
    """Labels after `view(new_shape)`, expanded only in the stretches of axes where they vary."""
    expanded: list[int] = []
    target: list[int] = []
    for old_axes, new_axes in _matching_stretches(old_shape, new_shape):
        varies = any(ids.shape[axis] > 1 for axis in old_axes)
        expanded += [old_shape[axis] if varies else 1 for axis in old_axes]
        target += [new_shape[axis] if varies else 1 for axis in new_axes]
    return ids.expand(expanded).reshape(target)


def _matching_stretches(
    old_shape: Sequence[int], new_shape: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    stretches = []
    old = new = 0
    while old < len(old_shape) or new < len(new_shape):
        old_axes: list[int] = []
        new_axes: list[int] = []
        old_size = new_size = 1
        while True:
            if old_size <= new_size and old < len(old_shape) and (not old_axes or old_size < new_size):
                old_size *= old_shape[old]
                old_axes.append(old)
                old += 1
            elif new < len(new_shape) and (not new_axes or new_size < old_size):
                new_size *= new_shape[new]
                new_axes.append(new)
                new += 1
            else:
                break
        stretches.append((old_axes, new_axes))
    return stretches
