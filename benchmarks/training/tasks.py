"""The task of a configuration."""

from __future__ import annotations

from benchmarks.harness.byte_task import ByteTask, python_sources
from benchmarks.harness.image_task import ImageTask
from benchmarks.harness.images import load_images
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
    return ImageTask(images, configuration.depth)
