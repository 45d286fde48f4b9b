"""One rule per operator: what it does to channel labels. Importing the room registers them all."""

from trainonce.tracing.operators import (
    contraction,
    convolution,
    experts,
    joining,
    movement,
    normalization,
    pointwise,
    reductions,
    scattering,
    transforms,
)

__all__ = [
    "contraction",
    "convolution",
    "experts",
    "joining",
    "movement",
    "normalization",
    "pointwise",
    "reductions",
    "scattering",
    "transforms",
]
