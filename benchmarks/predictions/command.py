"""`python -m benchmarks predictions`: train, predict, cut, predict again.

Writes `benchmarks/results/predictions.md`.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainonce
from benchmarks.flops import count_image_macs
from benchmarks.images import Images, load_images, predict
from benchmarks.recipe import Recipe, set_learning_rate
from benchmarks.resnet import build_resnet
from benchmarks.sheet import RESULTS, bar_table, heading, table, write_sheet, yes
from benchmarks.waiting import Waiting, waiting

BATCH = 128
LARGEST_DIFFERENCES = {torch.float32: 1e-4, torch.float64: 1e-9}

_INTRODUCTION = """\
A ResNet is trained with trainonce's defaults, the shrink put off to the end, so that the same weights can be asked on both sides of the
cut. Every image of the test set is given to the model right before and right after it.

- *other class*: test images whose predicted class changed; *accuracy*: before -> after, in %.
- *difference*: the largest difference of any output, relative to the largest output.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="a folder of images, train/CLASS/ and test/CLASS/ inside (default: digits)",
    )
    parser.add_argument(
        "--depth",
        type=int,
        action="append",
        default=[],
        help="of the ResNet; may be given again (default: 20)",
    )
    parser.add_argument(
        "--keep",
        type=float,
        action="append",
        default=[],
        help="budget; may be given again (default: 0.5, 0.3)",
    )
    parser.add_argument(
        "--steps", type=int, default=400, metavar="N", help="length of each run (default: 400)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "predictions.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a prediction changed."""
    sets = [load_images(arguments.data)]
    if sets[0].name != "digits":
        sets.append(load_images("digits"))
    runs = [
        (images, depth, keep)
        for images in sets
        for depth in arguments.depth or [20]
        for keep in arguments.keep or [0.5, 0.3]
    ]
    found: list[Compared] = []
    with waiting(len(runs) * arguments.steps, "predictions") as bar:
        for images, depth, keep in runs:
            bar.say(f"ResNet-{depth}, {images.name}, keep_flops={keep}")
            found += _measure(images, depth, keep, num_steps=arguments.steps, seed=arguments.seed, bar=bar)
    bars = summarise(found)
    header = (
        "model",
        "images",
        "keep_flops",
        "kept",
        "precision",
        "test images",
        "accuracy",
        "difference",
        "other class",
        "same",
    )
    write_sheet(
        arguments.out,
        [
            "# Predictions across the cut",
            "",
            *heading(seeds=f"seed {arguments.seed}", packages=("torch", "trainonce")),
            "",
            _INTRODUCTION,
            *bar_table(bars),
            "",
            "## Runs",
            "",
            *table(header, [compared.cells() for compared in found]),
        ],
    )
    return 0 if all(is_met for *_, is_met in bars) else 1


@dataclass(frozen=True, slots=True)
class Compared:
    """One model before and after its cut, in one precision."""

    depth: int
    images: str
    asked: float
    kept: float
    precision: torch.dtype
    num_images: int
    accuracies: tuple[float, float]
    """Before and after, in %."""

    difference: float
    num_changed: int

    def cells(self) -> tuple[object, ...]:
        """A row of the sheet."""
        model, accuracy = f"ResNet-{self.depth}", " -> ".join(f"{value:.2f}" for value in self.accuracies)
        shares, precision = (
            (f"{self.asked:g}", f"{self.kept:.4f}"),
            str(self.precision).removeprefix("torch."),
        )
        found = (
            self.num_images,
            accuracy,
            f"{self.difference:.0e}",
            self.num_changed,
            yes(self.num_changed == 0),
        )
        return model, self.images, *shares, precision, *found


def summarise(found: Sequence[Compared]) -> list[tuple[str, str, str, bool]]:
    """The bars over all runs."""
    num_changed, num_images = (
        sum(getattr(compared, name) for compared in found) for name in ("num_changed", "num_images")
    )
    bars = [
        ("predictions that change across the cut", "0", f"{num_changed} of {num_images}", num_changed == 0)
    ]
    for precision, largest in LARGEST_DIFFERENCES.items():
        worst = max(
            (compared.difference for compared in found if compared.precision is precision), default=0.0
        )
        name = str(precision).removeprefix("torch.")
        bars.append((f"largest difference in {name}", f"<= {largest:.0e}", f"{worst:.0e}", worst <= largest))
    return bars


def _held_loss(model: nn.Module, images: Images, *, seed: int, step: int) -> Tensor:
    held, labels = images.held_batch(seed=seed, step=step, batch_size=BATCH)
    return cross_entropy(model(held), labels)


def _measure(
    images: Images, depth: int, keep: float, *, num_steps: int, seed: int, bar: Waiting
) -> list[Compared]:
    torch.manual_seed(seed)
    model = build_resnet(depth, seed=seed, num_colours=images.num_colours).to(
        memory_format=torch.channels_last
    )
    dense_macs = count_image_macs(model, images.example(1))
    recipe = Recipe()
    optimizer = recipe.optimizer(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trainonce.ShortRunWarning)
        pruner = trainonce.attach(
            model,
            optimizer,
            example=images.example(),
            keep_flops=keep,
            total_steps=num_steps,
            shrink=False,
            seed=seed,
        )
    step = 0
    while step < num_steps:
        for inputs, labels in images.batches(seed=seed, epoch=step, batch_size=BATCH):
            if step == num_steps:
                break
            set_learning_rate(optimizer, recipe.learning_rate(step, num_steps))
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            pruner.step(lambda step=step: _held_loss(model, images, seed=seed, step=step))
            step += 1
            bar.advance()
    whole = copy.deepcopy(model)
    small = pruner.finish()
    share = count_image_macs(small, images.example(1)) / dense_macs
    found = []
    for dtype in LARGEST_DIFFERENCES:
        before, after = predict(whole.to(dtype), images), predict(small.to(dtype), images)
        num_changed = int((before.argmax(1) != after.argmax(1)).sum())
        first, second = (
            100 * float((outputs.argmax(1) == images.test_labels).float().mean())
            for outputs in (before, after)
        )
        difference = float((before - after).abs().max() / before.abs().max())
        found.append(
            Compared(
                depth, images.name, keep, share, dtype, len(before), (first, second), difference, num_changed
            )
        )
    return found
