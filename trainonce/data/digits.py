"""scikit-learn's digits: 1797 images of 8x8 pixels that come with the package, without a download."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits

from trainonce.data.catalogue import DataOptions, DataSet, Shape, dataset
from trainonce.data.resizing import in_memory

NUM_VALIDATION = 360


@dataset("digits", shape=Shape(num_classes=10, image_size=8))
def open_digits(_: str, options: DataOptions) -> DataSet:
    """The first 1437 samples for training, the last 360 for validation, as in scikit-learn's examples."""
    found: Any = load_digits()
    # 16 gray levels become 256, and gray becomes RGB, as for image files.
    images_NHW = torch.from_numpy(found.images * (255 / 16)).round().to(torch.uint8)
    images_NCHW = images_NHW.unsqueeze(1).expand(-1, 3, -1, -1).contiguous()
    labels_N = torch.from_numpy(found.target).long()
    train, validation = slice(0, len(labels_N) - NUM_VALIDATION), slice(len(labels_N) - NUM_VALIDATION, None)
    return in_memory(
        "digits",
        tuple(str(digit) for digit in range(10)),
        (images_NCHW[train], labels_N[train]),
        (images_NCHW[validation], labels_N[validation]),
        options,
        flips=False,
    )
