"""What is trained, on what, and how it is measured: takes a configuration's words, gives an object for them.

Needs torch alone: the peers' environments import it, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


class Task(ABC):
    """Everything about a training but who prunes it: the same for every contender with the same seed."""

    data_name: str

    @abstractmethod
    def build(self, *, seed: int) -> nn.Module:
        """The dense model; its first weights depend on the seed only."""

    @abstractmethod
    def draw_weights(self, model: nn.Module) -> None:
        """First weights for a model of any widths."""

    @abstractmethod
    def example(self, num_samples: int = 2) -> Tensor:
        """A few inputs as the model sees them."""

    @abstractmethod
    def steps_per_epoch(self, batch_size: int) -> int:
        """How many batches an epoch has."""

    @abstractmethod
    def batches(self, *, seed: int, epoch: int, batch_size: int) -> Iterator[Batch]:
        """One epoch, shuffled."""

    @abstractmethod
    def held_batch(self, *, seed: int, step: int, batch_size: int) -> Batch:
        """A batch for the controller, from a fixed 5 % of the samples to train on."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What is trained."""

    @abstractmethod
    def tested(self, model: nn.Module) -> dict[str, float]:
        """What the model in eval mode scores on the test set; `test_loss` is always among it."""
