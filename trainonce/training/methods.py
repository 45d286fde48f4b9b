"""Methods by name, as `--method` takes them, and the settings that a method fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainonce.errors import PrunerError, SettingError
from trainonce.pruning.method import METHODS, Method, find_method
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.pulling.projection import Proximal
from trainonce.training.policy_names import find_policy

DEFAULT_METHOD = "default"
_OWN_POLICY = {"paper": "paper_controller"}
"""As a run with this method records its policy."""

PARTS = (
    "search_from",
    "shrink_from",
    "first_cut_from",
    "settle_from",
    "zero_within",
    "policy",
    "controller_share",
)
"""The settings that are parts of a method."""


def fixed_by(name: Any) -> dict[str, Any]:
    """The settings that the method of this name has for itself; the default leaves all of them open."""
    # Not checked yet: a file may have anything there.
    if not isinstance(name, str) or name not in _OWN_POLICY:
        return {}
    method = METHODS[name]()
    of = {part: getattr(method.schedule, part) for part in PARTS[:4]}
    return of | {
        "zero_within": method.strength.zero_within,
        "policy": _OWN_POLICY[name],
        "controller_share": method.controller_share,
    }


def with_method(defaults: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The defaults of a run with this method, whose other defaults are these."""
    return {"controller_share": Method.default().controller_share, **defaults, **fixed_by(name)}


def check_method(settings: Any) -> None:
    """Raise SettingError if a setting differs from what the method has for it."""
    for name, value in fixed_by(settings.method).items():
        if (found := getattr(settings, name)) != value:
            raise SettingError(
                f"the method {settings.method} has its own {name} ({value}), and {name} is set to {found}. "
                f"Leave one of them out; the method {DEFAULT_METHOD} takes any {name}."
            )


def dropped_for_method(before: Any, changes: Mapping[str, Any]) -> dict[str, None]:
    """The settings that have the default of another method than these changes name, each with None."""
    now = changes.get("method", before.method)
    if now == before.method:
        return {}
    theirs = (fixed_by(before.method) | fixed_by(now)).keys() & before.defaults.keys()
    kept = {name for name in theirs if getattr(before, name) != before.defaults[name]}
    return dict.fromkeys(sorted(theirs - kept - changes.keys()))


def told_method(settings: Any, *, method: Any, policy: Any) -> tuple[Any, Method | None]:
    """The settings with the method that `fit` was told by name, or the method that it was given.

    SettingError for what is no method, or if parts of one are set beside it.
    """
    if method is None:
        return settings, None
    try:
        found = find_method(method)
    except PrunerError as error:
        raise SettingError(str(error)) from None
    if policy is not None:
        raise SettingError(
            f"the method {found.name} has its own policy, and policy is given, too. Leave one of them out."
        )
    if isinstance(method, str):
        return replace(settings, **dropped_for_method(settings, {"method": method}), method=method), None
    plain = type(settings)(pretrained=settings.pretrained, weights=settings.weights, opt=settings.opt)
    for name in ("method", *PARTS):
        if getattr(settings, name) != getattr(plain, name):
            raise SettingError(
                f"the method {found.name} has its own {name}, and the settings set it, too. Leave one out."
            )
    return settings, found


def method_of(settings: Any, policy: Policy | None = None) -> Method:
    """What the settings ask for; a given policy takes the place of the one that they name."""
    if settings.method != DEFAULT_METHOD:
        if policy is not None:
            raise SettingError(
                f"the method {settings.method} has its own policy, and policy is given, too. Leave one out."
            )
        return find_method(settings.method)
    chosen = find_policy(settings.policy) if policy is None else policy
    return Method(
        name=DEFAULT_METHOD,
        policy=lambda: chosen,
        schedule=settings.schedule,
        strength=settings.strength,
        pull=Proximal(),
        controller_share=settings.controller_share,
    )
