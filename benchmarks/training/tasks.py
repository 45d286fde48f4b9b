"""The task of a configuration."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import avg_pool2d

from benchmarks.harness.byte_task import ByteTask, python_sources
from benchmarks.harness.image_task import ImageTask
from benchmarks.harness.images import Images, load_images
from benchmarks.harness.task import Task
from benchmarks.training.configuration import Configuration


def task_of(configuration: Configuration) -> Task:
    """What a configuration trains, on what."""
    if configuration.task == "language":
        return ByteTask(python_sources(for_validation=configuration.for_validation))
    images = load_images(configuration.data or "digits")
    if configuration.for_validation:
        images = images.for_validation()
    if configuration.num_images is not None:
        images = images.first(configuration.num_images)
    if configuration.is_halved:
        images = _halved(images)
    return ImageTask(images, configuration.depth)


def _halved(images: Images) -> Images:
    """The same at half the height and width: a run costs a quarter."""

    def smaller(part: Tensor) -> Tensor:
        return avg_pool2d(part.float(), 2).round().to(part.dtype)

    return replace(
        images,
        name=f"{images.name}, at half their size",
        train_images=smaller(images.train_images),
        test_images=smaller(images.test_images),
    )
