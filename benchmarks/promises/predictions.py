"""`python -m benchmarks predictions`: train, predict, cut, predict again.

Writes `benchmarks/results/predictions.md`.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.harness.flops import count_image_macs
from benchmarks.harness.images import Images, accuracy_of, load_images, predict
from benchmarks.harness.pruning import attach, held_loss
from benchmarks.harness.recipe import Recipe, set_learning_rate, take_step
from benchmarks.harness.resnet import build_resnet
from benchmarks.sheets.options import add_data, add_number, add_seed, add_several
from benchmarks.sheets.sheet import Bar, bar_table, exit_code, heading, table, write_sheet, yes
from benchmarks.sheets.waiting import Waiting, waiting

BATCH = 128
LARGEST_DIFFERENCES = {torch.float32: 1e-4, torch.float64: 1e-9}

INTRODUCTION = """\
A ResNet is trained with trainonce's defaults, the shrink put off to the end, so that the same weights can
be asked on both sides of the cut. Every image of the test set is given to the model right before and right
after it.

- *other class*: test images whose predicted class changed; *accuracy*: before -> after, in %.
- *difference*: the largest difference of any output, relative to the largest output.
"""


_HEADER = (
    *("model", "images", "keep_flops", "kept", "precision", "test images", "accuracy", "difference"),
    *("other class", "same"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_data(parser)
    add_several(parser, "--depth", "of the ResNet", type=int, shown="20")
    add_several(parser, "--keep", "budget", type=float, shown="0.5, 0.3")
    add_number(parser, "--steps", 400, "length of each run")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a prediction changed."""
    sets = [load_images(arguments.data)]
    if sets[0].name != "digits":
        sets.append(load_images("digits"))
    runs = list(itertools.product(sets, arguments.depth or [20], arguments.keep or [0.5, 0.3]))
    found: list[Compared] = []
    with waiting(len(runs) * arguments.steps, "predictions") as bar:
        for images, depth, keep in runs:
            bar.say(f"ResNet-{depth}, {images.name}, keep_flops={keep}")
            found += _measure(images, depth, keep, num_steps=arguments.steps, seed=arguments.seed, bar=bar)
    bars = summarise(found)
    write_sheet(
        arguments.out,
        "Predictions across the cut",
        heading("trainonce", seeds=f"seed {arguments.seed}"),
        INTRODUCTION,
        bar_table(bars),
        "## Runs",
        table(_HEADER, [compared.cells() for compared in found]),
    )
    return exit_code(bars)


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


def summarise(found: Sequence[Compared]) -> list[Bar]:
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
    settings = {"keep_flops": keep, "total_steps": num_steps, "shrink": False, "seed": seed}
    pruner = attach(model, optimizer, example=images.example(), **settings)
    step = 0
    while step < num_steps:
        for batch in images.batches(seed=seed, epoch=step, batch_size=BATCH):
            if step == num_steps:
                break
            set_learning_rate(optimizer, recipe.learning_rate(step, num_steps))
            take_step(model, optimizer, batch)
            pruner.step(lambda step=step: held_loss(model, images, seed=seed, step=step, batch_size=BATCH))
            step += 1
            bar.advance()
    whole = copy.deepcopy(model)
    small = pruner.finish()
    share = count_image_macs(small, images.example(1)) / dense_macs
    found = []
    for dtype in LARGEST_DIFFERENCES:
        before, after = predict(whole.to(dtype), images), predict(small.to(dtype), images)
        num_changed = int((before.argmax(1) != after.argmax(1)).sum())
        first, second = (accuracy_of(outputs, images) for outputs in (before, after))
        difference = float((before - after).abs().max() / before.abs().max())
        found.append(
            Compared(
                depth, images.name, keep, share, dtype, len(before), (first, second), difference, num_changed
            )
        )
    return found
