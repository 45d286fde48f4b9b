"""How a run prunes: what `attach` was given, checked, with defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass

from trainonce.errors import PrunerError
from trainonce.messages.limits import SEED, Limits, check_value
from trainonce.messages.plain_text import shorten
from trainonce.pruning.policies.default import default_policy
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.pulling.projection import Proximal, Pull
from trainonce.pruning.schedule import Schedule, Strength, Timetable

_STEPS = Limits(kind=int, at_least=1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PruningSettings:
    """The method's own settings; the model, the optimizer and the budget are not among them."""

    total_steps: int
    policy: Policy
    schedule: Schedule
    strength: Strength
    pull: Pull
    shrink: bool
    """Whether to cut the model during training; otherwise only `finish` does."""

    seed: int

    @classmethod
    def of(
        cls,
        total_steps: int,
        policy: Policy | None,
        schedule: Schedule | None,
        strength: Strength | None,
        pull: Pull | None,
        *,
        shrink: bool,
        seed: int,
    ) -> PruningSettings:
        """The settings with defaults for what is None; PrunerError for anything of the wrong kind."""
        if not _STEPS.allows(total_steps):
            raise PrunerError(
                f"total_steps must be the number of optimizer steps in the whole run, got "
                f"{shorten(total_steps)}. Pass len(loader) * epochs."
            )
        check_value("shrink", shrink, Limits(kind=bool), error=PrunerError)
        check_value("seed", seed, SEED, error=PrunerError)
        _check_kind(policy, Policy, "policy must be an object such as trainonce.policies.FilterNorm()")
        _check_kind(schedule, Schedule, "schedule must be a trainonce.Schedule such as Schedule.paper()")
        _check_kind(strength, Strength, "strength must be a trainonce.Strength such as Strength.constant(10)")
        if pull is not None and (isinstance(pull, type) or not callable(getattr(pull, "pulled", None))):
            raise PrunerError(
                "pull must be an object such as trainonce.Proximal() or trainonce.HalfSpace(), got "
                f"{kind_of(pull)}."
            )
        return cls(
            total_steps=total_steps,
            policy=default_policy() if policy is None else policy,
            schedule=Schedule() if schedule is None else schedule,
            strength=Strength() if strength is None else strength,
            pull=Proximal() if pull is None else pull,
            shrink=shrink,
            seed=seed,
        )

    @property
    def timetable(self) -> Timetable:
        """The schedule in steps; SettingError if its phases are out of order."""
        return self.schedule.in_steps(self.total_steps)


def _check_kind(value: object, kind: type, words: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise PrunerError(f"{words}, got {kind_of(value)}.")


def kind_of(thing: object) -> str:
    """The type of a thing, for messages; for a class, how to make an object of it."""
    return (
        f"the class {thing.__name__}; write {thing.__name__}()"
        if isinstance(thing, type)
        else type(thing).__name__
    )
