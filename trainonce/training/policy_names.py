"""Policies by name, as `--policy` takes them."""

from __future__ import annotations

from collections.abc import Callable

from trainonce.errors import SettingError
from trainonce.messages.plain_text import shorten
from trainonce.messages.suggestions import did_you_mean
from trainonce.pruning import policies
from trainonce.pruning.policies.default import default_policy
from trainonce.pruning.policies.policy import Policy

DEFAULT_POLICY = "controller"
POLICIES: dict[str, Callable[[], Policy]] = {
    DEFAULT_POLICY: default_policy,
    "capacity": policies.Capacity,
    "discrete_gates": policies.DiscreteGates,
    "feature_rank": policies.FeatureRank,
    "filter_norm": policies.FilterNorm,
    "geometric_median": policies.GeometricMedian,
    "gradual": policies.Gradual,
    "norm_scale": policies.NormScale,
    "paper_controller": policies.Controller,
    "penalize_all": policies.PenalizeAll,
    "random": policies.RandomChoice,
    "soft_filter": policies.SoftFilter,
    "static_salience": policies.StaticSalience,
    "taylor": policies.Taylor,
    "uniform": policies.Uniform,
}
"""Each name makes a new policy, because policies have state."""


def find_policy(name: str) -> Policy:
    """A new policy of that name; SettingError if there is none."""
    if name not in POLICIES:
        advice = did_you_mean(name, POLICIES) or f"Choose one of {', '.join(POLICIES)}."
        raise SettingError(
            f"unknown policy {shorten(name)}. {advice} Pass your own as trainonce.fit(policy=...)."
        )
    return POLICIES[name]()
