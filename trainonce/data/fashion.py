"""Fashion-MNIST from torchvision, in memory: 60,000 and 10,000 gray images of 28 pixels."""

from __future__ import annotations

import torch
from torchvision import datasets

from trainonce.data.catalogue import DataOptions, DataSet, Shape, dataset
from trainonce.data.cifar import through_torchvision
from trainonce.data.resizing import in_memory


@dataset("fashion_mnist", shape=Shape(num_classes=10, image_size=28))
def open_fashion_mnist(_: str, options: DataOptions) -> DataSet:
    """Fashion-MNIST, with gray as RGB."""
    parts = [
        through_torchvision("fashion_mnist", datasets.FashionMNIST, options, train=train)
        for train in (True, False)
    ]
    train, validation = (
        (part.data.unsqueeze(1).expand(-1, 3, -1, -1), part.targets.to(torch.long)) for part in parts
    )
    return in_memory("fashion_mnist", tuple(parts[0].classes), train, validation, options, flips=True)
