"""Shapes from scratch: the model is cut before it trains, its weights are drawn anew."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

import trainonce
from benchmarks.harness.pruning import attach
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.contender import Contender
from benchmarks.training.fingerprint import code_of


class _Narrow(Contender, ABC):
    """Trained as the dense model is."""

    @abstractmethod
    def plan(self) -> trainonce.Plan:
        """What is cut out before the training."""

    def prepare(self) -> None:
        """Cut the untrained model and draw its weights again."""
        trainonce.cut(self.model, self.plan())
        torch.manual_seed(self.configuration.seed + 1000)
        self.task.draw_weights(self.model)
        super().prepare()


class FromScratch(_Narrow):
    """The shape that our defaults found with the same seed."""

    def plan(self) -> trainonce.Plan:
        source = replace(self.configuration, contender="ours")
        found = source.result(of_code=code_of(source))
        if found is None:
            raise RuntimeError(f"{source.name} has to be run first, by this code: it gives the shape")
        return trainonce.Plan.from_json(found["plan"])


class Shaped(_Narrow):
    """As narrow as the policy says; which channels it names makes no difference here."""

    def plan(self) -> trainonce.Plan:
        variant, whole = CONTENDERS[self.configuration.contender].settings, copy.deepcopy(self.model)
        policy = variant.policy()
        pruner = attach(
            whole,
            self.recipe.optimizer(whole),
            example=self.example,
            keep_flops=self.configuration.keep_flops,
            round_to=variant.round_to,
            total_steps=self.total_steps,
            policy=policy,
        )
        self._masks: Mapping[str, torch.Tensor] = policy.search.units.split(
            policy.search.budget.choose(policy.scores())
        )
        return trainonce.Plan.from_masks(pruner.partition, self._masks)

    def facts(self) -> dict[str, Any]:
        """How wide its layers are."""
        return {"widths": {name: int(mask.sum()) for name, mask in self._masks.items()}}
