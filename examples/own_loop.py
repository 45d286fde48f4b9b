"""Three calls in your own loop.

A small network learns scikit-learn's digits and keeps 45 % of its FLOPs.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import trainonce

EPOCHS, BATCH_SIZE, NUM_TRAIN = 30, 64, 1437


def main() -> None:
    """Train, prune on the way, compare."""
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = (
        torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16,
        torch.tensor(digits.target),
    )
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    total_steps = EPOCHS * (NUM_TRAIN // BATCH_SIZE)
    pruner = trainonce.attach(model, optimizer, example=images[:2], keep_flops=0.45, total_steps=total_steps)
    for step in range(total_steps):
        batch = torch.randint(NUM_TRAIN, (BATCH_SIZE,))
        cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if pruner.step(lambda batch=batch: cross_entropy(model(images[batch]), labels[batch])):
            print(f"step {step}: the model was cut")
    small = pruner.finish().eval()
    accuracy = (small(images[NUM_TRAIN:]).argmax(1) == labels[NUM_TRAIN:]).float().mean()
    share = trainonce.inspect(small, images[:2]).macs / pruner.partition.macs
    print(f"{accuracy:.1%} accuracy on unseen images, with {share:.1%} of the FLOPs")


if __name__ == "__main__":
    main()
