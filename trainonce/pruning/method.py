"""A whole way to prune as one object: what chooses, when, how hard, and on which data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trainonce.errors import PrunerError
from trainonce.messages.plain_text import shorten
from trainonce.messages.suggestions import did_you_mean
from trainonce.pruning.policies.controller import Controller
from trainonce.pruning.policies.default import default_policy
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.pulling.projection import Proximal, Pull
from trainonce.pruning.schedule import LONG_RUN_EVERY, Schedule, Strength


def _paper_controller() -> Policy:
    # A fixed rate: by itself, the controller learns faster in shorter runs.
    return Controller(learning_rate=1e-3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A pruning method as a whole; pass it, or its name, to `attach` and `fit`.

    Example: `trainonce.attach(..., method="paper")`, or with one constant changed
    `method=dataclasses.replace(Method.paper(), name="lambda 1", strength=Strength.constant(1.0))`.
    """

    name: str
    """The name in reports and messages."""

    policy: Callable[[], Policy]
    """Makes the policy of one run: policies have state."""

    schedule: Schedule
    strength: Strength
    pull: Pull

    controller_share: float
    """The share of the training data that the search learns from. `fit` and the command draw it; in your
    own loop, you choose what the loss in `Pruner.step` is computed on.
    """

    @classmethod
    def default(cls) -> Method:
        """This library's method, which `attach` uses by default."""
        return cls(
            name="default",
            policy=default_policy,
            schedule=Schedule(),
            strength=Strength(),
            pull=Proximal(),
            controller_share=0.05,
        )

    @classmethod
    def paper(cls) -> Method:
        """The paper's method: its controller, phases and constant lambda, one cut, 5 % of the data.

        With 5 % of the data, its controller sees a batch for every twenty of the model's: an update is made
        every 20 steps, at the paper's learning rate, however short the run is. The budget is met exactly,
        and the model is cut halfway through the run; the paper does neither.
        """
        return cls(
            name="paper",
            policy=_paper_controller,
            schedule=replace(Schedule.paper(), update_every=LONG_RUN_EVERY),
            strength=Strength.constant(10.0),
            pull=Proximal(),
            controller_share=0.05,
        )


METHODS: dict[str, Callable[[], Method]] = {"default": Method.default, "paper": Method.paper}


def find_method(method: object) -> Method:
    """A method, given as it is or by its name; PrunerError if there is none of that name."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]()
    if isinstance(method, str):
        advice = did_you_mean(method, METHODS) or f"Choose one of {', '.join(METHODS)}."
        raise PrunerError(f"there is no method {shorten(method)}. {advice}")
    raise PrunerError(
        f"method must be one of {', '.join(METHODS)}, or a trainonce.Method such as Method.paper(), got "
        f"{shorten(method)}."
    )
