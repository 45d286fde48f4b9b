"""Buffers from one model to another of the same class: takes both, leaves the second with what the first has, of whatever shape."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn


@torch.no_grad()
def copy_buffers(source: nn.Module, target: nn.Module, *, without: Collection[str] = ()) -> None:
    """Copy all but those named; what `source` has made for the size of its last input, `target` gets anew."""
    for (place, theirs), mine in zip(source.named_modules(), target.modules(), strict=True):
        for name, buffer in theirs._buffers.items():
            if f"{place}.{name}".lstrip(".") in without:
                continue
            own = mine._buffers.get(name)
            if buffer is None or own is None:
                mine._buffers[name] = None if buffer is None else buffer.clone()
            elif own.shape == buffer.shape:
                own.copy_(buffer)
            else:
                mine._buffers[name] = buffer.to(own.device, copy=True)
