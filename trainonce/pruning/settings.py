"""How a run prunes: what `attach` was given, checked, with defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass

from trainonce.errors import PrunerError
from trainonce.messages.limits import SEED, Limits, check_value
from trainonce.messages.plain_text import shorten
from trainonce.pruning.method import Method, find_method
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.pulling.projection import Pull
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
        method: Method | str | None,
        policy: Policy | None,
        schedule: Schedule | None,
        strength: Strength | None,
        pull: Pull | None,
        seed: int,
        *,
        shrink: bool,
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
        parts = {"policy": policy, "schedule": schedule, "strength": strength, "pull": pull}
        found = _checked_method(method, [name for name, part in parts.items() if part is not None])
        return cls(
            total_steps=total_steps,
            policy=found.policy() if policy is None else policy,
            schedule=found.schedule if schedule is None else schedule,
            strength=found.strength if strength is None else strength,
            pull=found.pull if pull is None else pull,
            shrink=shrink,
            seed=seed,
        )

    @property
    def timetable(self) -> Timetable:
        """The schedule in steps; SettingError if its phases are out of order."""
        return self.schedule.in_steps(self.total_steps)


def _checked_method(method: Method | str | None, given: list[str]) -> Method:
    """The method, the default one if it is None; PrunerError if parts of it were `given` beside it."""
    if method is None:
        return Method.default()
    found = find_method(method)
    if given:
        raise PrunerError(
            f"method {found.name} and {given[0]} are both given, and a method has its own {given[0]}. Leave "
            f"one out, or change the method: dataclasses.replace(trainonce.Method.paper(), {given[0]}=...)."
        )
    return found


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
