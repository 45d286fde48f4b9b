"""How far one has to walk to follow a call: `python tests/house/walks.py [CHECKOUT]`.

Prints, for three walks, how many files and rooms of the package run code, and how often others call back into
the file that it began in. CHECKOUT is another checkout of the project, to compare with.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import nn  # noqa: E402

import trainonce  # noqa: E402

PACKAGE = ROOT / "trainonce"


class Walk:
    """Which files of the package ran, and who called whom across files."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        here = place_of(frame)
        if event == "call" and here is not None:
            caller = frame.f_back
            while caller is not None and place_of(caller) is None:
                caller = caller.f_back
            there = place_of(caller) if caller is not None else None
            self.files.add(here)
            if there != here:
                self.calls.append((there or "", here))

    def describe(self) -> str:
        """Files, rooms, and how often other files of the package call back into the first one."""
        rooms = {str(Path(place).parent) for place in self.files}
        first = next(here for there, here in self.calls if not there)
        back = sum(here == first and there != "" for there, here in self.calls)
        return f"{len(self.files)} files in {len(rooms)} rooms; {first} is called back {back} times"


def place_of(frame: FrameType) -> str | None:
    """The file of the package that a frame runs, if it is one."""
    name = frame.f_code.co_filename
    return str(Path(name).relative_to(PACKAGE)) if name.startswith(f"{PACKAGE}/") else None


def walked(action: Callable[[], Any]) -> str:
    """What an action touches."""
    walk = Walk()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        sys.setprofile(walk)
        try:
            action()
        finally:
            sys.setprofile(None)
    return walk.describe()


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 4)
    )


def inspect_and_cut() -> None:
    model, example = small_net(), torch.randn(2, 3, 8, 8)
    partition = trainonce.inspect(model, example)
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5, seed=0))


def controller_step() -> Callable[[], None]:
    model, images = small_net(), torch.randn(4, 3, 8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pruner = trainonce.attach(model, optimizer, example=images, keep_flops=0.5, total_steps=1000)

    def loss() -> torch.Tensor:
        return model(images).square().mean()

    def step() -> None:
        loss().backward()
        optimizer.step()
        pruner.step(loss)

    while pruner.phase != "search":
        step()
    return step


def train() -> None:
    with tempfile.TemporaryDirectory() as place:
        sys.argv = [
            "trainonce",
            "train",
            "digits.resnet20",
            "--epochs",
            "1",
            "--quiet",
            "--out",
            f"{place}/run",
        ]
        from trainonce.cli import main

        with contextlib.suppress(SystemExit):
            main()


def main() -> None:
    """Print the walks; each is walked once before it is counted, so that imports are not."""
    inspect_and_cut()
    lines = {"inspect -> Plan -> cut": walked(inspect_and_cut)}
    step = controller_step()
    lines["one training step with a controller update"] = walked(step)
    train()
    lines["trainonce train"] = walked(train)
    for name, words in lines.items():
        sys.stdout.write(f"{name}: {words}\n")


if __name__ == "__main__":
    main()
