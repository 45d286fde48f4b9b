"""Checks a pruner's state before it is loaded, and says in one line what is wrong with it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import PlanError, PrunerError
from trainonce.messages.plain_text import quoted, shown
from trainonce.pruning.budget import Budget
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.restored import are_same_cuts
from trainonce.pruning.saved_run import unpacked_plan
from trainonce.pruning.units import Units
from trainonce.storage.likeness import MismatchError, check_alike, is_count, is_number
from trainonce.structure.plan import Plan

STATE_VERSION = 2
_FIELDS = frozenset(
    {
        "version",
        "num_steps",
        "total_steps",
        "groups",
        "decision",
        "decided_at",
        "is_final",
        "cuts",
        "controller_loss",
        "pulled",
        "floor",
        "policy",
    }
)


def check_pruner_state(
    state: Any, *, fingerprint: Mapping[str, Any], total_steps: int, units: Units, policy: Policy
) -> None:
    """Raise PrunerError unless the state fits this run and `policy` can load its part; nothing changes."""
    version = state.get("version") if isinstance(state, Mapping) else None
    if type(version) is not int or version != STATE_VERSION:
        raise PrunerError(
            f"the pruner's state has version {quoted(version)}, this trainonce reads {STATE_VERSION}. Use "
            "the trainonce that wrote it."
        )
    if missing := _FIELDS - set(state):
        raise PrunerError(f"the pruner's state has no entry {min(missing)}. Load what state_dict() returned.")
    if not _is_equal(state["groups"], fingerprint) or not _is_equal(state["total_steps"], total_steps):
        raise PrunerError(
            "the pruner's state is from a run with another model, budget or total_steps "
            f"({_difference(state, fingerprint, total_steps)}). Attach with the settings of that run."
        )
    try:
        _check_numbers(state, total_steps)
        _check_vectors(state, len(units))
        if state.get("gates") is not None:
            places = torch.empty(len(units.writers), len(units.groups), dtype=torch.uint8)
            check_alike(state["gates"], places, "gates")
        for masks in state["cuts"]:
            Plan.from_masks(units.partition, units.split(masks))
        if state["decided_at"] is not None:
            Plan.from_masks(units.partition, units.split(state["decision"]))
    except (MismatchError, PlanError) as error:
        raise PrunerError(
            f"the pruner's state is damaged: {shown(error, most=300)}. Load what state_dict() returned."
        ) from None
    try:
        _check_policy(state["policy"], policy)
    except MismatchError as error:
        raise PrunerError(
            f"the pruner's state is not one of {type(policy).__name__} ({shown(error, most=300)}). Attach "
            "with the policy of the run it is from."
        ) from None


def fingerprint_of(units: Units, budget: Budget) -> dict[str, Any]:
    """What a run is about: its groups and its budget."""
    families = {group.name: group.family for group in units.groups if group.family is not None}
    return {
        "sizes": {group.name: group.num_channels for group in units.groups},
        "share": budget.share,
        "counts": budget.word,
        **({"families": families} if families else {}),
    }


def check_saved_plans(state: Mapping[str, Any], wanted: Sequence[Plan]) -> None:
    """Raise PrunerError unless the plans in a state are those of its cuts; older states have none."""
    packed = state.get("plans", [])
    try:
        check_alike(packed, [], "plans")
        found = [unpacked_plan(part) for part in packed]
    except (MismatchError, PlanError) as error:
        raise PrunerError(
            f"the pruner's state is damaged: {shown(error, most=300)}. Load what state_dict() returned."
        ) from None
    if "plans" in state and not are_same_cuts(found, wanted):
        raise PrunerError(
            "the pruner's state is damaged: its plans are not those of its cuts. Load what state_dict() "
            "returned."
        )


def _difference(state: Mapping[str, Any], fingerprint: Mapping[str, Any], total_steps: int) -> str:
    """What of a run is not as in this one."""
    if not isinstance(state["groups"], Mapping):
        return "what it says of the model is no dict"
    found = {**state["groups"], "total_steps": state["total_steps"]}
    wanted = {**fingerprint, "total_steps": total_steps}
    names = {"counts": "budget", "share": "share", "total_steps": "total_steps"}
    for key, name in names.items():
        if not _is_equal(found.get(key), wanted[key]):
            return f"its {name} is {shown(found.get(key))}, here it is {shown(wanted[key])}"
    if found.get("families") != wanted.get("families"):
        return "it has equal widths, or other ones, and here it is the other way round"
    return "its model has other groups of channels"


def _check_policy(state: Any, policy: Policy) -> None:
    """Try the state on the policy, then put back what it had: only the policy knows what it needs."""
    template = _template(policy)
    if isinstance(template, Mapping) and isinstance(state, Mapping):
        # None means not known yet, whatever a state loaded earlier knew.
        template = {
            key: None if key in state and state[key] is None else value for key, value in template.items()
        }
    check_alike(state, template, "policy")
    before = copy.deepcopy(policy.state_dict())
    try:
        policy.load_state_dict(state)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise MismatchError(f"{type(policy).__name__} can't load its part ({shown(error)})") from None
    finally:
        policy.load_state_dict(before)


def _is_equal(found: Any, wanted: Any) -> bool:
    try:
        check_alike(found, wanted, "")
    except MismatchError:
        return False
    return bool(found == wanted)


def _template(policy: Policy) -> Any:
    """What a policy's state looks like; None, for anything, where the policy is the user's own."""
    if not type(policy).__module__.startswith("trainonce."):
        return None
    inner = {key: getattr(policy, f"_{key}", None) for key in policy.state_dict()}
    return policy.state_dict() | {
        key: _template(part) for key, part in inner.items() if isinstance(part, Policy)
    }


def _check_numbers(state: Mapping[str, Any], total_steps: int) -> None:
    if not is_count(state["num_steps"], total_steps):
        raise MismatchError(f"num_steps is {quoted(state['num_steps'])} of {total_steps}")
    if state["decided_at"] is not None and not is_count(state["decided_at"], total_steps):
        raise MismatchError(f"decided_at is {quoted(state['decided_at'])} of {total_steps}")
    if state["controller_loss"] is not None and not is_number(state["controller_loss"]):
        raise MismatchError(f"controller_loss is {quoted(state['controller_loss'])}, not a number")
    check_alike(state["is_final"], False, "is_final")
    # Older states don't have it.
    idle = state.get("idle", {})
    if not isinstance(idle, Mapping) or not all(
        isinstance(name, str) and is_count(count, total_steps) for name, count in idle.items()
    ):
        raise MismatchError("idle is not a number of steps per parameter name")
    if state["decided_at"] is None and (state["is_final"] or state["cuts"]):
        raise MismatchError("there is a cut but no decision")


def _check_vectors(state: Mapping[str, Any], num_units: int) -> None:
    """One entry per unit in each vector; each cut within the one before, the decision within the last."""
    check_alike(state["cuts"], [], "cuts")
    masks = [
        *((f"cuts/{place}", cut) for place, cut in enumerate(state["cuts"])),
        ("decision", state["decision"]),
    ]
    left = torch.ones(num_units, dtype=torch.uint8)
    for name, mask in masks:
        check_alike(mask, left, name)
        if bool((mask > left).any()):
            raise MismatchError(f"{name} keeps units that were cut before")
        left = mask
    if state["pulled"] is not None:
        check_alike(state["pulled"], left.bool(), "pulled")
    floor = state["floor"]
    if floor is not None and not (
        isinstance(floor, Tensor) and floor.is_floating_point() and floor.shape == (num_units,)
    ):
        raise MismatchError("floor is not one number per unit")
