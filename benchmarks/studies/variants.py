"""What the studies vary: takes nothing, gives each variant by name as plain data.

Importing this makes them known as contenders.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trainonce
from benchmarks.accuracy.contenders import DEFAULT_POLICY, Entry, add_contenders
from benchmarks.recipe import Recipe
from benchmarks.studies.adamw import ADAMW
from trainonce.pruning.pulling import projection
from trainonce.pruning.pulling.projection import Pull

CONSTANT_LAMBDAS = (0.1, 1.0, 10.0, 100.0)
GAMMAS = (0.25, 1.0, 4.0, 16.0)
LAST_CUTS = (0.65, 0.8)
SHRINK_FROM = (0.05, 0.20, 0.45)
"""Besides the default of 0.10: from the beginning of the search to the decision, as in the paper.

Nothing is cut before the pull begins.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """Our defaults, but for what is said here.

    Its text tells results of other settings apart, so all fields are plain data.
    """

    words: str
    strength: trainonce.Strength = field(default_factory=trainonce.Strength)
    schedule: trainonce.Schedule = field(default_factory=trainonce.Schedule)
    pull: Pull = field(default_factory=trainonce.Proximal)
    gamma: float | None = None
    """With it, the paper's controller and its one-sided penalty; None: the default policy."""

    revives: bool = True
    """Whether a unit that was dropped once may come back."""

    trunk: float = 3.0
    """How much more the prior keeps of what several layers read; 1: the same share of every layer."""

    learns: bool = True
    """Whether a controller goes on from the prior; without one, the prior decides."""

    random_within: bool = False
    """Whether the prior takes random channels of a layer, in place of the filters of largest norm."""

    recipe: Recipe = field(default_factory=Recipe)
    shrinks: bool = True
    prunes: bool = True


VARIANTS = {
    "defaults": Variant(words="our defaults"),
    **{
        f"lambda_{value:g}": Variant(
            words=f"constant lambda = {value:g}", strength=trainonce.Strength.constant(value)
        )
        for value in CONSTANT_LAMBDAS
    },
    "no_pull": Variant(
        words="no pull while the decision is open", strength=trainonce.Strength(searching=0.0)
    ),
    **{
        f"gamma_{value:g}": Variant(
            words=f"the paper's controller, gamma = {value:g}",
            gamma=value,
            schedule=trainonce.Schedule.paper(),
        )
        for value in GAMMAS
    },
    **{
        f"shrink_from_{value:g}": Variant(
            words=f"T_w at {value:.0%} of the run", schedule=trainonce.Schedule(shrink_from=value)
        )
        for value in SHRINK_FROM
    },
    "half_space": Variant(words="half-space", pull=trainonce.HalfSpace()),
    "half_space_10": Variant(
        words="half-space, constant lambda = 10",
        pull=trainonce.HalfSpace(),
        strength=trainonce.Strength.constant(10.0),
    ),
    "adamw": Variant(words="AdamW, proximal", recipe=ADAMW),
    "adamw_metric": Variant(
        words="AdamW, proximal in Adam's metric", recipe=ADAMW, pull=projection.AdamMetric()
    ),
    "dense_adamw": Variant(words="dense, AdamW", recipe=ADAMW, prunes=False),
    "never_back": Variant(words="what was dropped once stays dropped", revives=False),
    "even": Variant(words="the same share of every layer", trunk=1.0),
    "prior_alone": Variant(
        words="no controller: the prior's widths, the filters of largest norm", learns=False
    ),
    "prior_random": Variant(
        words="no controller: the prior's widths, random channels", learns=False, random_within=True
    ),
    "even_random": Variant(
        words="no controller: the same share of every layer, random channels",
        trunk=1.0,
        learns=False,
        random_within=True,
    ),
    "no_floor": Variant(words="no floor", strength=trainonce.Strength(floor=0.0)),
    "no_shrink": Variant(words="cut at the end only", shrinks=False),
    "once_at_0.3": Variant(
        words="one cut, at 30 % of the run", schedule=trainonce.Schedule(first_cut_from=0.3, settle_from=0.3)
    ),
    **{
        f"last_at_{value:g}": Variant(
            words=f"two cuts, the last at {value:.0%} of the run",
            schedule=trainonce.Schedule(settle_from=value),
        )
        for value in LAST_CUTS
    },
    "once_at_0.5": Variant(
        words="one cut, at 50 % of the run", schedule=trainonce.Schedule(first_cut_from=0.5, settle_from=0.5)
    ),
}

add_contenders(
    {
        name: Entry(
            variant.words,
            "studied",
            "Studied" if variant.prunes else "StudiedDense",
            prunes=variant.prunes,
            is_extra=True,
            package="studies",
            settings=repr(variant),
            policy_files=(*DEFAULT_POLICY, "random_choice"),
        )
        for name, variant in VARIANTS.items()
    }
)
