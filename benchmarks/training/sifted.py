"""What settings were chosen among, as contenders: each says all that it does.

So nothing here changes with the defaults.
"""

from __future__ import annotations

import trainonce
from benchmarks.training.entry import Entry
from benchmarks.training.variants import Make, Variant
from trainonce.pruning.policies import AnchoredController, Capacity, FilterNorm, Uniform
from trainonce.pruning.policies.default import BETWEEN_LAYERS

_LEARNED = Make(AnchoredController, prior=Make(Capacity), between_layers=BETWEEN_LAYERS)


def _entry(words: str, policy: Make, schedule: trainonce.Schedule, strength: trainonce.Strength) -> Entry:
    settings = Variant(policy=policy, schedule=schedule, strength=strength)
    return Entry(f"policy {words}", "ours:Ours", is_extra=True, settings=settings)


_HANDED = trainonce.Strength(zero_within=0.02, hand_over=True)
_PULLED = trainonce.Strength(zero_within=0.02, hand_over=False)
_PLAIN = trainonce.Strength(zero_within=1e-9, hand_over=False)
_TWICE = trainonce.Schedule(search_from=0.05, shrink_from=0.10, first_cut_from=0.20, settle_from=0.45)


def _sifted(words: str, policy: Make, *, at: float | None = None, is_handed: bool = True) -> Entry:
    schedule = _TWICE
    if at is not None:
        schedule = trainonce.Schedule(
            search_from=min(0.05, at / 2), shrink_from=min(0.1, at / 2), first_cut_from=at, settle_from=at
        )
    how = "handed over" if is_handed else "pulled"
    when = "two cuts" if at is None else f"one cut at {at:.0%}"
    strength = _HANDED if is_handed else _PULLED
    return _entry(f"{words}, {when}, {how}", policy, schedule, strength)


SIFTED = {
    "learned_pulled": _sifted("controller", _LEARNED, is_handed=False),
    "learned_handed": _sifted("controller", _LEARNED),
    "prior_pulled": _sifted("capacity", Make(Capacity), is_handed=False),
    "prior_handed": _sifted("capacity", Make(Capacity)),
    "even_handed": _sifted("capacity without a wider trunk", Make(Capacity, trunk=1.0)),
    "norm_handed": _sifted("filter norm", Make(FilterNorm, 2)),
    **{
        f"handed_at_{at:g}": _sifted("capacity", Make(Capacity), at=at)
        for at in (0.05, 0.1, 0.3, 0.45, 0.6, 0.75)
    },
    "pulled_at_0.6": _sifted("capacity", Make(Capacity), at=0.6, is_handed=False),
    "plain_norm": _entry(
        "filter norm, a plain cut at 50%",
        Make(FilterNorm, 2),
        trainonce.Schedule(search_from=0.05, shrink_from=0.10, first_cut_from=0.5, settle_from=0.5),
        _PLAIN,
    ),
}
"""From scratch."""

_AT_ONCE = trainonce.Schedule(search_from=0, shrink_from=0, first_cut_from=0, settle_from=0)
_LATE_TWICE = trainonce.Schedule(search_from=0.02, shrink_from=0.10, first_cut_from=0.30, settle_from=0.60)


def _started(words: str, policy: Make, *, is_handed: bool = True) -> Entry:
    strength = _HANDED if is_handed else _PLAIN
    how = "handed over" if is_handed else "a plain cut"
    return _entry(f"{words}, at once, {how}", policy, _AT_ONCE, strength)


STARTED = {
    "late_learned_pulled": _entry(
        "controller, two cuts at 30% and 60%, pulled",
        _LEARNED,
        _LATE_TWICE,
        trainonce.Strength(hand_over=False, zero_within=0.05),
    ),
    "start_norm_plain": _started("filter norm", Make(FilterNorm, 2), is_handed=False),
    "start_norm": _started("filter norm", Make(FilterNorm, 2)),
    "start_prior": _started("capacity", Make(Capacity)),
    "start_even": _started("capacity without a wider trunk", Make(Capacity, trunk=1.0)),
    "start_prior_plain": _started("capacity", Make(Capacity), is_handed=False),
    "start_uniform": _started("the same share of every layer", Make(Uniform)),
}
STARTED["early_prior_pulled"] = _entry(
    "capacity, at 2%, pulled",
    Make(Capacity),
    trainonce.Schedule(search_from=0.0, shrink_from=0.0, first_cut_from=0.02, settle_from=0.02),
    trainonce.Strength(zero_within=0.01, hand_over=False),
)
CUTTING = (*STARTED, "handed_at_0.1", "handed_at_0.3")
"""From pretrained weights."""
