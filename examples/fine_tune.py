"""From your own weights: a network that knows digits 0 to 4 learns all ten while it is pruned."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

import trainonce


def network(num_classes: int) -> nn.Module:
    """A small convolutional network."""
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes))


if __name__ == "__main__":
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.images).float()[:, None] / 16, torch.tensor(digits.target)
    few = labels[:1400] < 5
    known = (images[:1400][few], labels[:1400][few]), (images[1400:], labels[1400:].clamp(max=4))
    donor = trainonce.fit(network(5), known, keep_flops=1, epochs=4, quiet=True).model
    torch.save({"state_dict": donor.state_dict()}, "donor.pth")

    data = (images[:1400], labels[:1400]), (images[1400:], labels[1400:])
    result = trainonce.fit(network(10), data, keep_flops=0.5, epochs=20, weights="donor.pth")
    print(f"started from {result.report['start']}")
    print(result)
