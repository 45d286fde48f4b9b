"""`fit` in several processes: `torchrun --nproc-per-node 2 examples/two_processes.py FOLDER`.

Run the same command again to resume.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

import trainonce


def main() -> None:
    """Every process runs this; they share each batch, and the first one writes the files."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = (
        torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16,
        torch.tensor(digits.target),
    )
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    settings = trainonce.Settings(keep_flops=0.5, epochs=4, batch_size=128, lr=0.05, save_epochs=2)
    out = sys.argv[1] if len(sys.argv) > 1 else "runs/two"
    data = (images[:1437], labels[:1437]), (images[1437:], labels[1437:])
    result = trainonce.fit(model, data, settings=settings, out=out, resume=True)
    if result.report:
        before, after = result.report["before"]["macs"], result.report["after"]["macs"]
        print(f"{after / before:.1%} of the FLOPs, {result.report['after']['top1']:.1f} % accuracy, in {out}")


if __name__ == "__main__":
    main()
