"""ResNets for small images on a set of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.harness.images import Images, accuracy_of, predict
from benchmarks.harness.resnet import build_resnet, draw_weights
from benchmarks.harness.task import Batch, Task


@dataclass(frozen=True, slots=True)
class ImageTask(Task):
    """Classes of images by a ResNet of a depth."""

    images: Images
    depth: int

    @property
    def data_name(self) -> str:
        return self.images.name

    def build(self, *, seed: int) -> nn.Module:
        return build_resnet(self.depth, seed=seed, num_colours=self.images.num_colours)

    def draw_weights(self, model: nn.Module) -> None:
        draw_weights(model)

    def example(self, num_samples: int = 2) -> Tensor:
        return self.images.example(num_samples)

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.images.steps_per_epoch(batch_size)

    def batches(self, *, seed: int, epoch: int, batch_size: int) -> Iterator[Batch]:
        return self.images.batches(seed=seed, epoch=epoch, batch_size=batch_size)

    def held_batch(self, *, seed: int, step: int, batch_size: int) -> Batch:
        return self.images.held_batch(seed=seed, step=step, batch_size=batch_size)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets)

    def tested(self, model: nn.Module) -> dict[str, float]:
        """Accuracy, and the loss, which is the quieter measure."""
        outputs = predict(model, self.images)
        return {
            "accuracy": accuracy_of(outputs, self.images),
            "test_loss": float(cross_entropy(outputs, self.images.test_labels)),
        }
