"""trainonce in the harness: with its defaults, with the paper's constants, with other controllers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import trainonce
from benchmarks.accuracy.contender import Batch, Contender
from trainonce.pruning.policies import AnchoredController, Capacity, Controller, FreeLogits, Policy, Taylor
from trainonce.pruning.policies.default import BETWEEN_LAYERS
from trainonce.pruning.pulling.projection import Pull

PAPER_EVERY = 20


class Ours(Contender):
    """`attach`, `step`, `finish` with all defaults; subclasses pass other objects."""

    shrinks = True

    def policy(self) -> Policy | None:
        return None

    def pull(self) -> Pull | None:
        return None

    def strength(self) -> trainonce.Strength | None:
        return None

    def schedule(self) -> trainonce.Schedule | None:
        return None

    def prepare(self) -> None:
        """The user's first line."""
        super().prepare()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", trainonce.ShortRunWarning)
            self.pruner = trainonce.attach(
                self.model,
                self.optimizer,
                example=self.example,
                keep_flops=self.configuration.keep_flops,
                total_steps=self.total_steps,
                policy=self.policy(),
                pull=self.pull(),
                strength=self.strength(),
                schedule=self.schedule(),
                shrink=self.shrinks,
                seed=self.configuration.seed,
            )
        self._shrunk_at: int | None = None

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """The user's second line."""
        loss = super().step(number, batch, draw_held)

        def loss_on_held() -> Tensor:
            images, labels = draw_held()
            return cross_entropy(self.model(images), labels)

        if self.pruner.step(loss_on_held):
            self._shrunk_at = number
        return loss

    def finish(self) -> torch.nn.Module:
        """The user's third line."""
        return self.pruner.finish()

    def facts(self) -> dict[str, Any]:
        """The plan, for the same shape from scratch, and what would explain a bad result."""
        plan = self.pruner.plan
        return {
            "plan": None if plan is None else plan.to_json(),
            "alive": {name: list(counts) for name, counts in self.pruner.alive.items()},
            "shrunk_at_step": self._shrunk_at,
            "controller_loss": self.pruner.controller_loss,
        }

    def state_dict(self) -> dict[str, Any]:
        """As a user would."""
        return {**super().state_dict(), "pruner": self.pruner.state_dict(), "shrunk_at": self._shrunk_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The pruner first: it cuts the model if the run was past the shrink."""
        self.pruner.load_state_dict(state["pruner"])
        self._shrunk_at = state["shrunk_at"]
        super().load_state_dict(state)


class PaperConstants(Ours):
    """The paper's lambda = 10 throughout, its phases, one controller update in 20 steps at 1e-3."""

    def policy(self) -> Policy:
        return Controller(learning_rate=1e-3)

    def strength(self) -> trainonce.Strength:
        return trainonce.Strength.constant(10.0)

    def schedule(self) -> trainonce.Schedule:
        return replace(trainonce.Schedule.paper(), update_every=PAPER_EVERY)


class PaperStrength(Ours):
    """Only the paper's constant lambda; the controller learns as often as in ours."""

    def strength(self) -> trainonce.Strength:
        return trainonce.Strength.constant(10.0)


class PaperController(Ours):
    """The paper's controller with its one-sided penalty; everything else as in ours."""

    def policy(self) -> Policy:
        return Controller()


class PaperPhases(Ours):
    """Decides at half-time, as the paper does; everything else as in ours."""

    def schedule(self) -> trainonce.Schedule:
        return trainonce.Schedule.paper()


class PlainController(Ours):
    """One free logit per unit instead of the recurrent network."""

    def policy(self) -> Policy:
        return AnchoredController(FreeLogits, prior=Capacity(), between_layers=BETWEEN_LAYERS)


class FreeBalance(Ours):
    """Whole layers move as freely as units."""

    def policy(self) -> Policy:
        return AnchoredController(prior=Capacity())


class WithoutPrior(Ours):
    """The controller alone decides how much of each layer stays."""

    def policy(self) -> Policy:
        return AnchoredController()


class TaylorPrior(Ours):
    """The controller begins with what the Taylor criterion expects."""

    def policy(self) -> Policy:
        return AnchoredController(prior=Taylor(per_layer=True))
