"""trainonce in the harness: three lines of a user, with what the contender's variant says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import trainonce
from benchmarks.harness.pruning import attach
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.contender import Batch, Contender
from benchmarks.training.teaching import TEMPERATURE, WEIGHT
from benchmarks.training.variants import Variant
from trainonce.training.policy_names import POLICIES
from trainonce.training.starts import FINE_TUNING

FINE_TUNED = {
    "schedule": trainonce.Schedule(
        search_from=FINE_TUNING.search_from,
        shrink_from=FINE_TUNING.shrink_from,
        first_cut_from=FINE_TUNING.first_cut_from,
        settle_from=FINE_TUNING.settle_from,
    ),
    "strength": trainonce.Strength(zero_within=FINE_TUNING.zero_within),
    "policy": POLICIES[FINE_TUNING.policy],
}
"""What `--pretrained` and `fit(pretrained=True)` set."""


class Ours(Contender):
    """`attach`, `step`, `finish`."""

    @property
    def variant(self) -> Variant:
        return CONTENDERS[self.configuration.contender].settings

    def prepare(self) -> None:
        """The user's first line."""
        variant = self.variant
        self.recipe = variant.recipe or self.recipe
        super().prepare()
        usual = FINE_TUNED if self.configuration.start_epochs else {}
        make_policy = variant.policy or usual.get("policy")
        self.pruner = attach(
            self.model,
            self.optimizer,
            example=self.example,
            keep_flops=self.configuration.keep_flops,
            total_steps=self.total_steps,
            policy=make_policy and make_policy(),
            pull=variant.pull,
            strength=variant.strength or usual.get("strength"),
            schedule=variant.schedule or usual.get("schedule"),
            round_to=variant.round_to,
            shrink=variant.shrinks,
            seed=self.configuration.seed,
            teacher=None
            if self.teacher is None
            else trainonce.Teacher(model=self.teacher, weight=WEIGHT, temperature=TEMPERATURE),
        )
        self._shrunk_at: int | None = None

    def loss(self, batch: Batch) -> Tensor:
        """As everybody's, but asked as a user does; `teaching.taught` is the same for those without us."""
        inputs, targets = batch
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=self.memory_format)
        outputs = self.model(inputs)
        return self.pruner.taught(self.task.loss(outputs, targets), outputs, inputs)

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """The user's second line."""
        loss = super().step(number, batch, draw_held)

        if self.pruner.step(lambda: self.loss(draw_held())):
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
