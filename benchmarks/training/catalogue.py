"""All contenders by name, as data: the main ones, the variants of the studies, the shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import trainonce
from benchmarks.harness.recipe import AdamWRecipe
from benchmarks.training.entry import DENSE, PEERS, Entry
from benchmarks.training.sifted import SIFTED, STARTED
from benchmarks.training.variants import Make, NeverBack, Variant
from trainonce.pruning.policies import (
    AnchoredController,
    Capacity,
    Controller,
    DiscreteGates,
    FeatureRank,
    FilterNorm,
    FreeLogits,
    GeometricMedian,
    Gradual,
    NormScale,
    PenalizeAll,
    RandomChoice,
    SoftFilter,
    StaticSalience,
    Taylor,
    Uniform,
)
from trainonce.pruning.policies.default import BETWEEN_LAYERS
from trainonce.pruning.pulling.projection import AdamMetric

PAPER_EVERY = 20
PACKAGE_LAMBDA = 1e-3
"""Of HSPG and its kin with SGD, in the package only_train_once."""

CHOSEN_AT = 0.10
"""Of the run, when only_train_once begins to prune; the warm-up of the learning rate is over then."""

_PAPER, _CONSTANT = trainonce.Schedule.paper(), trainonce.Strength.constant(10.0)
_NO_FLOOR = trainonce.Strength(floor=0.0)


def _ours(words: str, *, is_extra: bool = False, **settings: Any) -> Entry:
    return Entry(words, "ours:Ours", is_extra=is_extra, settings=Variant(**settings))


def _policy(words: str, policy: Make, *, is_extra: bool = False, **settings: Any) -> Entry:
    return _ours(f"policy {words}", is_extra=is_extra, policy=policy, **settings)


def _extra(words: str, **settings: Any) -> Entry:
    return _ours(f"ours, {words}", is_extra=True, **settings)


def _anchored(*arguments: Any, kind: type = AnchoredController, **prior: Any) -> Make:
    """The default policy with something else in its place."""
    return Make(kind, *arguments, prior=Make(Capacity, **prior), between_layers=BETWEEN_LAYERS)


_MAIN = {
    **DENSE,
    "ours": _ours("ours, defaults"),
    "ours_taught": replace(_ours("ours, taught", is_extra=True), is_taught=True),
    "scratch": Entry("the shape that ours found, from scratch", "from_scratch:FromScratch", needs="ours"),
    "paper": _ours(
        "ours, the paper's constants",
        policy=Make(Controller, learning_rate=1e-3),
        strength=_CONSTANT,
        schedule=replace(_PAPER, update_every=PAPER_EVERY),
    ),
    "paper_strength": _extra("the paper's constant lambda only", strength=_CONSTANT),
    "paper_phases": _extra("the paper's phases only", schedule=_PAPER),
    "paper_controller": _extra("the paper's controller only", policy=Make(Controller)),
    "free_balance": _extra(
        "layers move as freely as units", policy=Make(AnchoredController, prior=Make(Capacity))
    ),
    "no_prior": _extra("without the capacity prior", policy=Make(AnchoredController)),
    "taylor_prior": _extra(
        "controller on a Taylor prior", policy=Make(AnchoredController, prior=Make(Taylor, per_layer=True))
    ),
    "free_logits": _extra("one free logit per unit", policy=_anchored(FreeLogits)),
    "oto": _policy(
        "OTO (all penalised, half-space)",
        Make(PenalizeAll),
        pull=trainonce.HalfSpace(),
        strength=trainonce.Strength(searching=PACKAGE_LAMBDA, floor=0.0),
    ),
    "otov2": _policy(
        "OTOv2 (static salience, half-space)",
        Make(StaticSalience),
        pull=trainonce.HalfSpace(),
        strength=_NO_FLOOR,
        schedule=trainonce.Schedule(search_from=CHOSEN_AT),
    ),
    "gradual": _policy("gradual (HESSO-like)", Make(Gradual), is_extra=True),
    "filter_norm": _policy("filter norm L2", Make(FilterNorm, 2)),
    "capacity": _policy("capacity (the prior alone)", Make(Capacity), is_extra=True),
    "norm_scale": _policy("batch-norm scale (slimming)", Make(NormScale), is_extra=True),
    "fpgm": _policy("geometric median (FPGM)", Make(GeometricMedian)),
    "sfp": _policy("soft filter pruning (SFP)", Make(SoftFilter), is_extra=True),
    "hrank": _policy("rank of feature maps (HRank)", Make(FeatureRank), is_extra=True),
    "dmc": _policy("discrete gates (DMC)", Make(DiscreteGates), is_extra=True),
    "taylor": _policy("Taylor, layers ranked together", Make(Taylor)),
    "random": _policy("random", Make(RandomChoice)),
    "uniform": _policy("uniform", Make(Uniform), is_extra=True),
    **PEERS,
}

CONSTANT_LAMBDAS = (0.1, 1.0, 10.0, 100.0)
GAMMAS = (0.25, 1.0, 4.0, 16.0)
LAST_CUTS = (0.65, 0.8)
SHRINK_FROM = (0.05, 0.20, 0.45)
"""Besides the default of 0.10: from the beginning of the search to the decision, as in the paper.

Nothing is cut before the pull begins.
"""

_ADAMW = AdamWRecipe(peak_learning_rate=3e-3, weight_decay=1e-2)


def _studied(words: str, **settings: Any) -> Entry:
    """The studies are about a search that learns and pulls, which has a controller."""
    settings.setdefault("policy", _anchored())
    return Entry(words, "studied:Studied", is_extra=True, settings=Variant(**settings))


def _one_cut(at: float) -> Entry:
    schedule = trainonce.Schedule(first_cut_from=at, settle_from=at)
    return _studied(f"one cut, at {100 * at:.0f} % of the run", schedule=schedule)


VARIANTS = {
    "defaults": _studied("our defaults"),
    **{
        f"lambda_{value:g}": _studied(
            f"constant lambda = {value:g}", strength=trainonce.Strength.constant(value)
        )
        for value in CONSTANT_LAMBDAS
    },
    "no_pull": _studied("no pull while the decision is open", strength=trainonce.Strength(searching=0.0)),
    **{
        f"gamma_{value:g}": _studied(
            f"the paper's controller, gamma = {value:g}",
            policy=Make(Controller, gamma=value),
            schedule=_PAPER,
        )
        for value in GAMMAS
    },
    **{
        f"shrink_from_{value:g}": _studied(
            f"T_w at {value:.0%} of the run", schedule=trainonce.Schedule(shrink_from=value)
        )
        for value in SHRINK_FROM
    },
    "half_space": _studied("half-space", pull=trainonce.HalfSpace()),
    "half_space_10": _studied(
        "half-space, constant lambda = 10", pull=trainonce.HalfSpace(), strength=_CONSTANT
    ),
    "adamw": _studied("AdamW, proximal", recipe=_ADAMW),
    "adamw_metric": _studied("AdamW, proximal in Adam's metric", recipe=_ADAMW, pull=AdamMetric()),
    "dense_adamw": Entry(
        "dense, AdamW",
        "studied:StudiedDense",
        prunes=False,
        is_extra=True,
        settings=Variant(recipe=_ADAMW),
    ),
    "never_back": _studied("what was dropped once stays dropped", policy=_anchored(kind=NeverBack)),
    "even": _studied("the same share of every layer", policy=_anchored(trunk=1.0)),
    "prior_alone": _studied(
        "no controller: the prior's widths, the filters of largest norm", policy=Make(Capacity)
    ),
    "prior_random": _studied(
        "no controller: the prior's widths, random channels", policy=Make(Capacity, Make(RandomChoice))
    ),
    "even_random": _studied(
        "no controller: the same share of every layer, random channels",
        policy=Make(Capacity, Make(RandomChoice), trunk=1.0),
    ),
    "no_floor": _studied("no floor", strength=_NO_FLOOR),
    "no_shrink": _studied("cut at the end only", shrinks=False),
    "once_at_0.3": _one_cut(0.3),
    **{
        f"last_at_{value:g}": _studied(
            f"two cuts, the last at {value:.0%} of the run",
            schedule=trainonce.Schedule(settle_from=value),
        )
        for value in LAST_CUTS
    },
    "once_at_0.5": _one_cut(0.5),
}

TRUNKS = (1, 3)
"""Of `policies.Capacity`: how much more is kept of what many layers read."""

EXPONENTS = (-0.2, 0.0, 0.2, 0.5)
"""Of `policies.Capacity`: from wide early layers to wide late ones."""

_REMARKS = {(1, 0.0): ": the same share of every layer", (3, 0.0): ": the default prior"}


def shape_name(trunk: int, exponent: float) -> str:
    """What a shape is called as a contender."""
    return f"shape_{trunk}_{exponent:g}"


def _shape(words: str, trunk: int, exponent: float, *, round_to: int | None = None) -> Entry:
    settings = Variant(policy=Make(Capacity, trunk=trunk, exponent=exponent), round_to=round_to)
    return Entry(words, "from_scratch:Shaped", is_extra=True, settings=settings)


SHAPES = {
    **{
        shape_name(trunk, exponent): _shape(
            f"trunk {trunk}, exponent {exponent:g}{_REMARKS.get((trunk, exponent), '')}", trunk, exponent
        )
        for trunk in TRUNKS
        for exponent in EXPONENTS
    },
    "shape_any": _shape("the default prior, any width, not rounded", 3, 0.0, round_to=1),
}

_BEGUN = {"search_from": 0.0, "shrink_from": 0.02}
"""Pretrained weights are no noise: the search begins at once."""

_EARLY_TWICE = trainonce.Schedule(**_BEGUN, first_cut_from=0.05, settle_from=0.15)
_EARLY_ONCE = trainonce.Schedule(**_BEGUN, first_cut_from=0.10, settle_from=0.10)

TUNED = {
    "early_twice": _extra("cut at 5 and 15 %", schedule=_EARLY_TWICE),
    "early_once": _extra("cut at 10 %", schedule=_EARLY_ONCE),
    "early_prior": _policy("capacity, cut at 10 %", Make(Capacity), is_extra=True, schedule=_EARLY_ONCE),
    "early_even": _policy(
        "capacity, even, cut at 10 %", Make(Capacity, trunk=1.0), is_extra=True, schedule=_EARLY_ONCE
    ),
    "early_prior_taylor": _policy(
        "capacity, Taylor within layers, cut at 10 %",
        Make(Capacity, Make(Taylor)),
        is_extra=True,
        schedule=_EARLY_ONCE,
    ),
    "prior_twice": _policy(
        "capacity, cut at 5 and 15 %", Make(Capacity), is_extra=True, schedule=_EARLY_TWICE
    ),
}
"""What was tried for runs that begin with pretrained weights."""

CONTENDERS: dict[str, Entry] = {**_MAIN, **VARIANTS, **SHAPES, **TUNED, **SIFTED, **STARTED}
