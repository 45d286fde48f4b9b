"""Buffers from one model to another of the same class.

Takes both, leaves the second with what the first has, of whatever shape.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn


@torch.no_grad()
def copy_buffers(source: nn.Module, target: nn.Module, *, without: Collection[str] = ()) -> None:
    """Copy all but those named; what `source` has made for the size of its last input, `target` gets anew."""
    for (place, theirs), mine in zip(source.named_modules(), target.modules(), strict=True):
        # Scripted modules have no dict there, but something that can be read as one.
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
