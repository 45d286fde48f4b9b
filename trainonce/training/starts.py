"""Where a run starts from, and the defaults that depend on it: from scratch, or from pretrained weights.

These two objects are the only place that has them. Whatever is set explicitly takes their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainonce.training.policy_names import DEFAULT_POLICY

ADAPTIVE = ("adam", "adamw", "nadam")
"""Optimizers that divide by the size of the gradient, so that their learning rate is a step size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The defaults of all settings that depend on where a run starts from."""

    name: str
    """As the first lines and the report say it."""

    lr: float
    adaptive_lr: float
    """The learning rate of `ADAPTIVE` optimizers."""

    warmup_epochs: float
    search_from: float
    shrink_from: float
    first_cut_from: float | None
    settle_from: float
    zero_within: float
    policy: str

    def defaults(self, opt: str) -> dict[str, Any]:
        """The default of every setting that depends on the start, for an optimizer of this name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        adaptive = found.pop("adaptive_lr")
        del found["name"]
        return found | ({"lr": adaptive} if opt in ADAPTIVE else {})


FROM_SCRATCH = Start(
    name="from scratch",
    lr=0.1,
    adaptive_lr=1e-3,
    warmup_epochs=0.0,
    search_from=0.05,
    shrink_from=0.10,
    first_cut_from=None,
    settle_from=0.45,
    zero_within=0.02,
    policy=DEFAULT_POLICY,
)
"""The weights are noise: the learning rate is high, and cutting early saves most of the training."""

FINE_TUNING = Start(
    name="fine-tuning",
    lr=0.01,
    adaptive_lr=1e-4,
    warmup_epochs=0.0,
    search_from=0.0,
    shrink_from=0.0,
    first_cut_from=0.02,
    settle_from=0.02,
    zero_within=0.01,
    policy="filter_norm",
)
"""The weights know something already.

A lower rate keeps what they know. Their norms say which channels matter, in all layers, so one cut can be
made right away: it leaves the whole run for the small model to recover, and costs least.
`python -m benchmarks cutting` compares this with later cuts and other ways to choose.
"""

DEPENDENT = frozenset(FROM_SCRATCH.defaults("sgd"))
"""The names of these settings."""

ON_WHICH_DEFAULTS_DEPEND = frozenset(("pretrained", "weights", "opt"))


def start_of(*, pretrained: bool, weights: str | None) -> Start:
    """The start of a run with these settings."""
    return FINE_TUNING if pretrained or weights is not None else FROM_SCRATCH


def other_when_fine_tuning(name: str) -> str:
    """Such as `; 0.01 when fine-tuning`, for the help text of a setting."""
    return f"; {getattr(FINE_TUNING, name):g} when fine-tuning"


def dropped_defaults(before: Any, changes: Mapping[str, Any]) -> dict[str, None]:
    """The settings that no longer have their right default after these changes, each with None.

    A run that now starts from pretrained weights gets all defaults of fine-tuning, whatever a recipe for
    training from scratch has; one with another optimizer gets that one's learning rate.
    """
    now = {name: changes.get(name, getattr(before, name)) for name in ON_WHICH_DEFAULTS_DEPEND}
    start = start_of(pretrained=bool(now["pretrained"]), weights=now["weights"])
    dropped = set(DEPENDENT) if start is not before.start else set()
    if now["opt"] != before.opt and before.lr == before.start.defaults(before.opt)["lr"]:
        dropped.add("lr")
    return dict.fromkeys(sorted(dropped - changes.keys()))
