"""Products by group in float64, in which torch has no kernel for them: one product for each group."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

_OPERATOR = getattr(torch.ops.aten, "_grouped_mm", None)
GROUPED: frozenset[Any] = frozenset() if _OPERATOR is None else frozenset({_OPERATOR.default})
"""The operator, where this torch has it."""

_FLOATS = 4
"""In float32, rows begin at multiples of 16 bytes."""


def grouped_in_double(
    rows: Tensor,
    matrices: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Each group of rows times its matrix; `offs` says where each group ends.

    Refuses shapes that torch's own kernel refuses, so that what runs here runs there.
    """
    if bias is not None:
        raise NotImplementedError("a product by group with a bias has no kernel of torch's own")
    for tensor in (rows, matrices):
        strides = sorted(tensor.stride()[-2:])
        if strides[0] != 1 or strides[1] % _FLOATS:
            raise RuntimeError(f"strides should be multiple of 16 bytes in float32, got {tensor.stride()}")
    if rows.dim() == 3 and matrices.dim() == 3:
        return torch.bmm(rows, matrices)
    if offs is None:
        raise RuntimeError("a product by group needs offs unless both factors have an axis of groups")
    ends = pairwise([0, *offs.tolist()])
    if rows.dim() == 3:
        parts = [rows[group] @ matrices[:, start:end] for group, (start, end) in enumerate(ends)]
        return torch.cat(parts, dim=1)
    if matrices.dim() == 2:
        return torch.stack([rows[:, start:end] @ matrices[start:end] for start, end in ends])
    found = rows.new_zeros(rows.shape[0], matrices.shape[2])
    for group, (start, end) in enumerate(ends):
        found[start:end] = rows[start:end] @ matrices[group]
    return found
