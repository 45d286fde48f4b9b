"""scikit-learn's digits, small models for them, and the three-line loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import trainonce
from graphs.necks import ConvNormRelu

NUM_TRAINING = 1400


@cache
def digits(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, images and labels to test on."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    shuffled = torch.from_numpy(images).to(dtype)[order].reshape(-1, 1, 8, 8) / 8 - 1
    answers = torch.from_numpy(labels)[order]
    return shuffled[:NUM_TRAINING], answers[:NUM_TRAINING], shuffled[NUM_TRAINING:], answers[NUM_TRAINING:]


def batch(step: int, size: int = 64, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """The batch of a step: the same whenever it is asked for."""
    images, labels, _, _ = digits(dtype)
    chosen = torch.randint(NUM_TRAINING, (size,), generator=torch.Generator().manual_seed(step))
    return images[chosen], labels[chosen]


def convolutional(width: int = 24) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            ConvNormRelu(1, width),
            ConvNormRelu(width, 2 * width, stride=2),
            ConvNormRelu(2 * width, width),
            nn.Flatten(),
            nn.Linear(16 * width, 10),
        )


def perceptron(width: int = 48) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 10),
        )


def predictions(model: nn.Module) -> Tensor:
    """The model's logits on the whole test set, in evaluation mode; its mode is put back."""
    training = model.training
    with torch.no_grad():
        logits = model.eval()(digits(next(model.parameters()).dtype)[2])
    model.train(training)
    return logits


def accuracy(model: nn.Module) -> float:
    return float((predictions(model).argmax(dim=1) == digits()[3]).float().mean())


def attached(model: nn.Module, optimizer: Any, total_steps: int, **settings: Any) -> trainonce.Pruner:
    """A pruner with enough updates for its controller."""
    schedule = trainonce.Schedule(
        search_from=0.1, shrink_from=0.2, settle_from=0.5, update_every=max(1, total_steps // 150)
    )
    dtype = next(model.parameters()).dtype
    settings = {"keep_flops": 0.45, "schedule": schedule} | settings
    return trainonce.attach(
        model, optimizer, example=batch(0, 2, dtype)[0], total_steps=total_steps, **settings
    )


def train(
    model: nn.Module,
    optimizer: Any,
    pruner: trainonce.Pruner,
    *,
    steps: range,
    size: int = 64,
    before: Callable[[], object] | None = None,
    after: Callable[[int, bool], object] | None = None,
) -> None:
    """The loop of the README.

    `before` is called before the pruner's step, `after` is told the step and whether the model was cut in it.
    """
    dtype = next(model.parameters()).dtype
    model.train()
    for step in steps:
        images, labels = batch(step, size, dtype)
        held_images, held_labels = batch(step + 1_000_000, size, dtype)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if before is not None:
            before()
        cut = pruner.step(lambda: F.cross_entropy(model(held_images), held_labels))  # noqa: B023
        if after is not None:
            after(step, cut)


def same(left: Any, right: Any) -> bool:
    """Whether two states, of tensors in dicts and lists, are equal bit for bit."""
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right
