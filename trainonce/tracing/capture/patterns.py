"""einops without its memory: it remembers the sizes of an earlier call that looks the same.

Inside, sizes are worked out anew at each call, so that each is traced to what it was computed from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_REMEMBERED = ("_reconstruct_from_shape",)
"""What einops remembers by sizes; `NAME_uncached` beside each is the same without memory."""


@contextmanager
def sizes_not_remembered() -> Iterator[None]:
    """Inside, einops computes sizes at each call; nothing happens where it was never imported."""
    einops = sys.modules.get("einops.einops")
    changed = {
        name: getattr(einops, name)
        for name in _REMEMBERED
        if hasattr(einops, name) and hasattr(einops, f"{name}_uncached")
    }
    for name in changed:
        setattr(einops, name, getattr(einops, f"{name}_uncached"))
    try:
        yield
    finally:
        for name, remembering in changed.items():
            setattr(einops, name, remembering)
