"""A small model and small data for tests of whole runs."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainonce.errors import RunInterruptedError
from trainonce.runs.report.live import Moment
from trainonce.training import Settings, fit

NUM_SAMPLES, NUM_CLASSES = 64, 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(16, 24, 3, padding=1, stride=2),
            nn.BatchNorm2d(24),
            nn.ReLU(),
        )
        self.head = nn.Linear(24, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean(dim=(2, 3)))


def make_net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def make_plain_net() -> nn.Module:
    """No batch norm and no dropout: what a sample gives depends on no other sample, and on no process."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(216, 4),
    ]
    return nn.Sequential(*layers).double()


def make_data(num_samples: int = NUM_SAMPLES) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Four classes that differ in the brightness of one corner."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(num_samples) % NUM_CLASSES
    images = torch.randn(num_samples, 3, 8, 8, generator=generator)
    for label in range(NUM_CLASSES):
        row, column = divmod(label, 2)
        images[labels == label, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1.5
    return (images, labels), (images[:32] + 0.1, labels[:32])


def make_settings(**changes: Any) -> Settings:
    return Settings(
        **({"keep_flops": 0.5, "epochs": 6, "batch_size": 16, "lr": 0.05, "save_minutes": 1000.0} | changes)
    )


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@dataclass
class Counter:
    """A loss that counts its calls in training and does something at one of them."""

    at: set[int]
    act: Any
    calls: int = 0

    def __call__(self, output: Tensor, targets: Tensor) -> Tensor:
        value = nn.functional.cross_entropy(output, targets)
        if output.requires_grad:
            self.calls += 1
            if self.calls in self.at:
                return self.act(value)
        return value


def interrupt(value: Tensor) -> Tensor:
    """What a `Counter` may do: ask this process to stop, as a scheduler would."""
    os.kill(os.getpid(), signal.SIGTERM)
    return value


def stop_run(out: Path, *, at: int, net: nn.Module | None = None, settings: Settings | None = None) -> None:
    """Train into `out` until a signal comes at this step; the run saves itself and is interrupted."""
    with pytest.raises(RunInterruptedError):
        fit(
            net or make_net(),
            make_data(),
            settings=settings or make_settings(),
            loss=Counter({at}, interrupt),
            out=out,
            quiet=True,
        )


class Listener:
    """A view that keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, moment: Moment) -> None: ...

    def say(self, line: str) -> None:
        self.lines.append(line)

    def close(self) -> None: ...
