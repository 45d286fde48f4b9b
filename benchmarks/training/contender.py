"""What every contender is: plain training, to which pruning adds.

Takes batches, gives a model; needs torch alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.harness.recipe import Recipe, set_learning_rate
from benchmarks.harness.resnet import build_resnet
from benchmarks.training.configuration import Configuration

Batch = tuple[Tensor, Tensor]


class Contender:
    """Dense training; a subclass changes what it must and nothing else.

    Not the data, not the recipe, not the number of steps.
    """

    memory_format = torch.channels_last
    can_resume = True

    def __init__(self, configuration: Configuration, *, example: Tensor, total_steps: int) -> None:
        self.configuration = configuration
        self.example = example
        self.total_steps = total_steps
        self.recipe = Recipe()
        torch.manual_seed(configuration.seed)
        self.model: nn.Module = build_resnet(
            configuration.depth, seed=configuration.seed, num_colours=example.shape[1]
        )
        self.model = self.model.to(memory_format=self.memory_format)
        self.prepare()

    def prepare(self) -> None:
        """Make the optimizer, and whatever else the contender needs."""
        self.optimizer: torch.optim.Optimizer = self.recipe.optimizer(self.model)

    def learning_rate(self, step: int) -> float:
        """Of one step; one cosine over the whole run."""
        return self.recipe.learning_rate(step, self.total_steps)

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """One training step; gives the loss. `draw_held` gives a batch of the 5 % sample for a controller."""
        set_learning_rate(self.optimizer, self.learning_rate(number))
        loss = cross_entropy(self.model(batch[0].contiguous(memory_format=self.memory_format)), batch[1])
        loss.backward()
        self.before_optimizer_step()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def before_optimizer_step(self) -> None:
        """A place for regularisers that write to gradients."""
        return

    def begin_epoch(self, epoch: int) -> None:
        """Called before the first step of an epoch, not again for one that is resumed."""
        return

    def finish(self) -> nn.Module:
        """The final model."""
        return self.model

    def facts(self) -> dict[str, Any]:
        """What else the result should say."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Enough to go on from the end of an epoch."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
