"""The shapes that are compared: takes nothing, gives each by name; importing this makes them known as contenders."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.accuracy.contenders import Entry, add_contenders

EXPONENTS = (-0.2, 0.0, 0.1, 0.2, 0.35, 0.5)
"""Of `policies.Capacity`: from wide early layers to wide late ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How a budget is shared among the layers."""

    words: str
    exponent: float
    round_to: int | None = None


def _said(exponent: float) -> str:
    remark = {0.0: ": the same share of every layer", 0.2: ": the default prior"}.get(exponent, "")
    return f"exponent {exponent:g}{remark}"


SHAPES = {
    **{f"shape_{exponent:g}": Shape(words=_said(exponent), exponent=exponent) for exponent in EXPONENTS},
    "shape_0.2_any": Shape(words="exponent 0.2, any width, not rounded", exponent=0.2, round_to=1),
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
