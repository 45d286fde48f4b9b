"""Cut half of ResNet-50's channels, check that nothing else changed, then save and load the small model."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torchvision.models import resnet50

import trainonce


def milliseconds(model: nn.Module, images: Tensor) -> float:
    """The fastest of five runs."""
    durations = []
    for _ in range(5):
        start = time.perf_counter()
        model(images)
        durations.append(time.perf_counter() - start)
    return 1000 * min(durations)


def show(what: str, *, macs: int, num_parameters: int, latency_ms: float) -> None:
    """One line of the table."""
    print(
        f"  {what:<6} {macs / 1e9:6.2f} G multiply-adds {num_parameters / 1e6:6.2f} M parameters "
        f"{latency_ms:7.1f} ms"
    )


@torch.no_grad()
def main() -> None:
    """Inspect, silence, cut, compare, save, load."""
    torch.manual_seed(0)
    images = torch.randn(1, 3, 224, 224)
    model = resnet50().eval()
    partition = trainonce.inspect(model, images)
    print("ResNet-50 with random weights, one image of 224 x 224:")
    show(
        "whole",
        macs=partition.macs,
        num_parameters=partition.num_parameters,
        latency_ms=milliseconds(model, images),
    )

    plan = trainonce.Plan.random(partition, keep=0.5, seed=0)
    trainonce.silence(model, plan)
    silenced = model(images)
    trainonce.cut(model, plan)
    small = trainonce.inspect(model, images)
    show("cut", macs=small.macs, num_parameters=small.num_parameters, latency_ms=milliseconds(model, images))
    difference = (model(images) - silenced).abs().max() / silenced.abs().max()
    print(f"  largest difference to the silenced model, relative to its output: {difference:.1e}")

    with tempfile.TemporaryDirectory() as folder:
        trainonce.save(model, Path(folder) / "small")
        again = trainonce.load(Path(folder) / "small", into=resnet50().eval())
        num_bytes = sum(file.stat().st_size for file in (Path(folder) / "small").iterdir())
    same = "bit for bit the same" if torch.equal(again(images), model(images)) else "DIFFERENT"
    print(f"  saved in {num_bytes / 1e6:.1f} MB and loaded onto a new ResNet-50: {same}")


if __name__ == "__main__":
    main()
