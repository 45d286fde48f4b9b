"""From a folder of images to a small timm model, in Python: `python examples/fit_folder.py PHOTOS [MODEL]`.

PHOTOS has one folder per class, either under train/ and val/ or all in one place.
"""

from __future__ import annotations

import sys

import timm
import torch

import trainonce
from trainonce.data.catalogue import DataOptions, open_data


def main() -> None:
    """Open the data, train, print the result."""
    photos, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "resnet18"
    data = open_data(f"folder:{photos}", DataOptions(image_size=64, num_workers=2))
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=data.num_classes)
    settings = trainonce.Settings(keep_flops=0.5, epochs=2, batch_size=16, opt="adamw", lr=1e-3)
    result = trainonce.fit(model, data, settings=settings)
    before, after = result.report["before"], result.report["after"]
    print(
        f"{name} on {len(data.train)} images of {data.num_classes} classes: {before['macs']:,} -> "
        f"{after['macs']:,} multiply-adds"
    )
    print(
        f"{after['top1']:.1f} % accuracy; same class before and after the cut on "
        f"{result.report['agreement']['num_same']} images"
    )


if __name__ == "__main__":
    main()
