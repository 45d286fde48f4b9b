"""Segmentation: find discs and squares in noise; the report shows the mean IoU."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import trainonce


def draw(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures of 24 pixels, each with a disc (1) and a square (2) on nothing (0)."""
    dice = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(24), torch.arange(24), indexing="ij")
    masks = torch.zeros(number, 24, 24, dtype=torch.long)
    for mask in masks:
        (disc_row, disc_column, row, column) = torch.randint(5, 19, (4,), generator=dice).tolist()
        mask[(rows - disc_row) ** 2 + (columns - disc_column) ** 2 < 18] = 1
        mask[row - 3 : row + 4, column - 3 : column + 4] = 2
    colors = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.2, 0.4], [0.3, 1.0, 0.2]])
    return colors[masks].permute(0, 3, 1, 2) + 0.4 * torch.randn(number, 3, 24, 24, generator=dice), masks


def layer(inputs: int, outputs: int) -> list[nn.Module]:
    """A convolution, its norm and its activation."""
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(*layer(3, 24), *layer(24, 48), *layer(48, 24), nn.Conv2d(24, 3, 1))
    settings = trainonce.Settings(keep_flops=0.4, epochs=12, batch_size=16, lr=0.1)
    out = sys.argv[1] if len(sys.argv) > 1 else "runs/segmentation"
    result = trainonce.fit(model, (draw(192, 0), draw(64, 1)), settings=settings, out=out)
    print(result)
    print(f"mean IoU {result.report['after']['metrics']['mean_iou']:.1f} %, shown on {out}/report.html")
