"""The shapes that are compared: takes nothing, gives each by name.

Importing this makes them known as contenders.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.accuracy.contenders import Entry, add_contenders

TRUNKS = (1, 3)
"""Of `policies.Capacity`: how much more is kept of what many layers read."""

EXPONENTS = (-0.2, 0.0, 0.2, 0.5)
"""Of `policies.Capacity`: from wide early layers to wide late ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How a budget is shared among the layers."""

    words: str
    trunk: int
    exponent: float
    round_to: int | None = None


def _said(trunk: int, exponent: float) -> str:
    remark = {(1, 0.0): ": the same share of every layer", (3, 0.0): ": the default prior"}.get(
        (trunk, exponent), ""
    )
    return f"trunk {trunk}, exponent {exponent:g}{remark}"


def shape_name(trunk: int, exponent: float) -> str:
    """What a shape is called as a contender."""
    return f"shape_{trunk}_{exponent:g}"


SHAPES = {
    **{
        shape_name(trunk, exponent): Shape(words=_said(trunk, exponent), trunk=trunk, exponent=exponent)
        for trunk in TRUNKS
        for exponent in EXPONENTS
    },
    "shape_any": Shape(words="the default prior, any width, not rounded", trunk=3, exponent=0.0, round_to=1),
}

add_contenders(
    {
        name: Entry(
            shape.words,
            "shaped",
            "Shaped",
            is_extra=True,
            package="shapes",
            settings=repr(shape),
            policy_files=("policy", "capacity", "norms", "relative"),
        )
        for name, shape in SHAPES.items()
    }
)
