"""Units whose rows lie in several parameters, made by hand, and the same units as plain matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainonce.pruning.units import Rows, Units


def units_over(num_units: int, *rows: Rows) -> Units:
    """Units of one group that consist of these rows; there is no model behind them."""
    return Units(
        partition=cast(Any, None),
        groups=(),
        group_of=torch.zeros(num_units, dtype=torch.long),
        channels=torch.arange(num_units),
        writers=rows,
        kept_here={},
    )


def gathered(units: Units, tensors: Mapping[str, Tensor], unit: int) -> Tensor:
    """All numbers of one unit as one vector, writer by writer."""
    pieces = []
    for rows in units.writers:
        positions = rows.positions[rows.units == unit]
        pieces.append(
            tensors[rows.tensor].detach().index_select(rows.axis, positions).movedim(rows.axis, 0).flatten()
        )
    return torch.cat(pieces)


def lengths(units: Units, tensors: Mapping[str, Tensor], unit: int) -> list[tuple[str, int]]:
    """Which parameter each run of numbers in `gathered` comes from, and how long it is."""
    found = []
    for rows in units.writers:
        shape = tensors[rows.tensor].shape
        per_row = tensors[rows.tensor].numel() // shape[rows.axis]
        found.append((rows.tensor, per_row * int((rows.units == unit).sum())))
    return found


def scattered_units(dtype: torch.dtype = torch.double) -> tuple[Units, dict[str, nn.Parameter]]:
    """Six units over a kernel, two vectors, the columns of a matrix, and heads of two rows.

    Kernel and matrix have rows of nobody.
    """
    generator = torch.Generator().manual_seed(0)
    shapes = {"kernel": (8, 3, 2, 2), "bias": (6,), "scale": (6,), "reader": (5, 7), "heads": (12, 4)}
    tensors = {
        name: nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
        for name, shape in shapes.items()
    }
    order = torch.tensor([4, 1, 0, 5, 3, 2])
    units = units_over(
        6,
        Rows("kernel", 0, torch.tensor([7, 0, 2, 3, 5, 6]), order),
        Rows("bias", 0, torch.arange(6), order),
        Rows("scale", 0, torch.arange(6), torch.arange(6)),
        Rows("reader", 1, torch.tensor([1, 2, 3, 4, 5, 6]), torch.arange(6)),
        Rows("heads", 0, torch.arange(12), torch.arange(12) // 2),
    )
    return units, tensors
