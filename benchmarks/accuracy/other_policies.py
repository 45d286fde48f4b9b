"""trainonce in the harness with other ways to choose.

Schedule, budget, pull and cut are ours unless they belong to the way.
"""

from __future__ import annotations

import trainonce
from benchmarks.accuracy.ours import Ours
from trainonce.pruning.policies import (
    Capacity,
    FilterNorm,
    GeometricMedian,
    Gradual,
    NormScale,
    PenalizeAll,
    Policy,
    RandomChoice,
    StaticSalience,
    Taylor,
    Uniform,
)
from trainonce.pruning.pulling.projection import Pull

PACKAGE_LAMBDA = 1e-3
"""Of HSPG and its kin with SGD, in the package only_train_once."""

CHOSEN_AT = 0.10
"""Of the run, when only_train_once begins to prune; the warm-up of the learning rate is over then."""


class WithOto(Ours):
    """All units are pulled with that package's own lambda, and may reach zero."""

    def policy(self) -> Policy:
        return PenalizeAll()

    def pull(self) -> Pull:
        return trainonce.HalfSpace()

    def strength(self) -> trainonce.Strength:
        return trainonce.Strength(searching=PACKAGE_LAMBDA, floor=0.0)


class WithOtoV2(Ours):
    """What goes is chosen once, where that package begins to prune, and may reach zero."""

    def policy(self) -> Policy:
        return StaticSalience()

    def pull(self) -> Pull:
        return trainonce.HalfSpace()

    def strength(self) -> trainonce.Strength:
        return trainonce.Strength(floor=0.0)

    def schedule(self) -> trainonce.Schedule:
        return trainonce.Schedule(search_from=CHOSEN_AT)


class WithGradual(Ours):
    def policy(self) -> Policy:
        return Gradual()


class WithFilterNorm(Ours):
    def policy(self) -> Policy:
        return FilterNorm(2)


class WithCapacity(Ours):
    def policy(self) -> Policy:
        return Capacity()


class WithNormScale(Ours):
    def policy(self) -> Policy:
        return NormScale()


class WithGeometricMedian(Ours):
    def policy(self) -> Policy:
        return GeometricMedian()


class WithTaylor(Ours):
    def policy(self) -> Policy:
        return Taylor()


class WithRandom(Ours):
    def policy(self) -> Policy:
        return RandomChoice()


class WithUniform(Ours):
    def policy(self) -> Policy:
        return Uniform()
