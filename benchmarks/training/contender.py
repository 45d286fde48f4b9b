"""What every contender is: plain training, to which pruning adds.

Takes batches, gives a model; needs torch alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks.harness.recipe import set_learning_rate
from benchmarks.harness.recipes import RECIPES
from benchmarks.harness.task import Batch, Task
from benchmarks.training.configuration import Configuration
from benchmarks.training.teaching import taught


class Contender:
    """Dense training; a subclass changes what it must and nothing else.

    Not the data, not the recipe, not the number of steps.
    """

    memory_format = torch.channels_last
    can_resume = True

    def __init__(self, configuration: Configuration, task: Task) -> None:
        self.configuration = configuration
        self.task = task
        self.example = task.example()
        self.total_steps = configuration.epochs * task.steps_per_epoch(configuration.batch_size)
        self.recipe = RECIPES[configuration.recipe]
        torch.manual_seed(configuration.seed)
        self.model: nn.Module = self._built(configuration.start_epochs)
        self.teacher = self._built(configuration.teacher_epochs) if configuration.teacher_epochs else None
        self.prepare()

    def _built(self, epochs: int | None) -> nn.Module:
        """A new model, with the weights of the dense run of so many epochs if it is said."""
        model = self.task.build(seed=self.configuration.seed)
        if epochs:
            model.load_state_dict(load_file(self.configuration.dense_of(epochs).weights_file))
        return model.to(memory_format=self.memory_format)  # type: ignore[call-overload]

    def prepare(self) -> None:
        """Make the optimizer, and whatever else the contender needs."""
        self.optimizer: torch.optim.Optimizer = self.recipe.optimizer(self.model)

    def learning_rate(self, step: int) -> float:
        """Of one step; one cosine over the whole run."""
        return self.recipe.learning_rate(step, self.total_steps)

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """One training step; gives the loss. `draw_held` gives a batch of the 5 % sample for a controller."""
        set_learning_rate(self.optimizer, self.learning_rate(number))
        loss = self.loss(batch)
        loss.backward()
        self.before_optimizer_step()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def loss(self, batch: Batch) -> Tensor:
        """On one batch, as the model is now; with a teacher, half of it is how far it is from the teacher."""
        inputs, targets = batch
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=self.memory_format)
        outputs = self.model(inputs)
        loss = self.task.loss(outputs, targets)
        return loss if self.teacher is None else taught(loss, outputs, self.teacher, inputs)

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
