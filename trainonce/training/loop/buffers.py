"""Copying buffers between two models of the same class."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn


@torch.no_grad()
def copy_buffers(source: nn.Module, target: nn.Module, *, without: Collection[str] = ()) -> None:
    """Copy all buffers but those in `without`; ones of another shape are replaced."""
    for (place, theirs), mine in zip(source.named_modules(), target.modules(), strict=True):
        # Script modules have no plain dict there.
        owned = dict(mine._buffers.items())
        for name, buffer in theirs._buffers.items():
            if f"{place}.{name}".lstrip(".") in without:
                continue
            own = owned.get(name)
            if own is not None and buffer is not None and own.shape == buffer.shape:
                own.copy_(buffer)
            elif own is not buffer:
                mine._buffers[name] = (
                    None
                    if buffer is None
                    else buffer.to(buffer.device if own is None else own.device, copy=True)
                )
