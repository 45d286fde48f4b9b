"""What a mistyped name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.5) -> str:
    """`Did you mean resnet18 or resnet34?`, whatever the case of the letters; empty if nothing is close."""
    by_lower_case = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_lower_case, n=most, cutoff=cutoff)
    return f"Did you mean {' or '.join(by_lower_case[match] for match in near)}?" if near else ""
