"""A shape in the harness.

The model is cut before it is trained, its weights are drawn anew, and it trains as the dense one does.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

import trainonce
from benchmarks.accuracy.contender import Contender
from benchmarks.resnet import draw_weights
from benchmarks.shapes.catalogue import SHAPES
from trainonce.pruning.policies import Capacity


class Shaped(Contender):
    """From scratch, as narrow as `Capacity` says; which channels it names makes no difference here."""

    def prepare(self) -> None:
        """Cut the untrained model and draw its weights again."""
        shape = SHAPES[self.configuration.contender]
        policy, whole = Capacity(trunk=shape.trunk, exponent=shape.exponent), copy.deepcopy(self.model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", trainonce.ShortRunWarning)
            pruner = trainonce.attach(
                whole,
                self.recipe.optimizer(whole),
                example=self.example,
                keep_flops=self.configuration.keep_flops,
                round_to=shape.round_to,
                total_steps=self.total_steps,
                policy=policy,
            )
        masks = policy.search.units.split(policy.search.budget.choose(policy.scores()))
        trainonce.cut(self.model, trainonce.Plan.from_masks(pruner.partition, masks))
        self._widths = {name: int(mask.sum()) for name, mask in masks.items()}
        torch.manual_seed(self.configuration.seed + 1000)
        draw_weights(self.model)
        super().prepare()

    def facts(self) -> dict[str, Any]:
        """How wide its layers are."""
        return {"widths": self._widths}
