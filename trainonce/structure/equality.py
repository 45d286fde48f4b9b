"""Values that hold tensors, compared by what they hold: `==` on tensors would give a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor


class ComparedByContent:
    """A dataclass (`eq=False`) that is equal to another of its class that holds the same."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, tensors to the last bit."""
        return has_same_content(self, other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        """By the fields that are plain: equal values have equal ones."""
        held = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        return hash(tuple(item for item in held if isinstance(item, str | int | Enum | None)))


def has_same_content(one: Any, other: Any, known: dict[tuple[int, int], bool] | None = None) -> bool:
    """Whether two values hold the same; looks into dataclasses, tuples, lists, dicts, slices and tensors."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    known = {} if known is None else known
    pair = (id(one), id(other))
    if pair not in known:
        known[pair] = _has_same_content(one, other, known)
    return known[pair]


def _has_same_content(one: Any, other: Any, known: dict[tuple[int, int], bool]) -> bool:
    if isinstance(one, Tensor):
        if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
            return False
        return one.is_meta or torch.equal(one, other)
    if is_dataclass(one):
        return all(
            has_same_content(getattr(one, field.name), getattr(other, field.name), known)
            for field in fields(one)
        )
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(
            has_same_content(item, other[key], known) for key, item in one.items()
        )
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(
            has_same_content(mine, theirs, known) for mine, theirs in zip(one, other, strict=True)
        )
    if isinstance(one, slice):
        return all(
            has_same_content(getattr(one, name), getattr(other, name), known)
            for name in ("start", "stop", "step")
        )
    return bool(one == other)
