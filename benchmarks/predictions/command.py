"""`python -m benchmarks predictions`: train, predict, cut, predict again; writes `benchmarks/results/predictions.md`."""

from __future__ import annotations

import argparse
import copy
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainonce
from benchmarks.flops import count_image_macs
from benchmarks.images import Images, load_images, predict
from benchmarks.recipe import Recipe, set_learning_rate
from benchmarks.resnet import build_resnet
from benchmarks.sheet import RESULTS, heading, table, write_sheet, yes
from benchmarks.waiting import Waiting, waiting

BATCH = 128

_INTRODUCTION = """\
A ResNet is trained with trainonce's defaults, the shrink put off to the end, so that the same weights can be asked on both sides of the
cut. Every image of the test set is given to the model right before and right after it.

- *other class*: test images whose predicted class changed; *accuracy*: before -> after, in %.
- *difference*: the largest difference of any output, relative to the largest output.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("--data", metavar="PATH", help="a folder of images, train/CLASS/ and test/CLASS/ inside (default: digits)")
    parser.add_argument("--depth", type=int, action="append", default=[], help="of the ResNet; may be given again (default: 20)")
    parser.add_argument("--keep", type=float, action="append", default=[], help="budget; may be given again (default: 0.5, 0.3)")
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="length of each run (default: 400)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "predictions.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a prediction changed."""
    sets = [load_images(arguments.data)]
    if sets[0].name != "digits":
        sets.append(load_images("digits"))
    runs = [(images, depth, keep) for images in sets for depth in arguments.depth or [20] for keep in arguments.keep or [0.5, 0.3]]
    rows = []
    with waiting(len(runs) * arguments.steps, "predictions") as bar:
        for images, depth, keep in runs:
            bar.say(f"ResNet-{depth}, {images.name}, keep_flops={keep}")
            rows += _measure(images, depth, keep, num_steps=arguments.steps, seed=arguments.seed, bar=bar)
    same = all(row[-1] == yes(True) for row in rows)
    header = ("model", "images", "keep_flops", "kept", "precision", "test images", "accuracy", "difference", "other class", "same")
    write_sheet(
        arguments.out,
        [
            "# Predictions across the cut",
            "",
            *heading(seeds=f"seed {arguments.seed}", packages=("torch", "trainonce")),
            "",
            _INTRODUCTION,
            *table(header, rows),
        ],
    )
    return 0 if same else 1


def _held_loss(model: nn.Module, images: Images, *, seed: int, step: int) -> Tensor:
    held, labels = images.held_batch(seed=seed, step=step, batch_size=BATCH)
    return cross_entropy(model(held), labels)


def _measure(images: Images, depth: int, keep: float, *, num_steps: int, seed: int, bar: Waiting) -> list[tuple[object, ...]]:
    torch.manual_seed(seed)
    model = build_resnet(depth, seed=seed, num_colours=images.num_colours).to(memory_format=torch.channels_last)
    dense_macs = count_image_macs(model, images.example(1))
    recipe = Recipe()
    optimizer = recipe.optimizer(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trainonce.ShortRun)
        pruner = trainonce.attach(
            model, optimizer, example=images.example(), keep_flops=keep, total_steps=num_steps, shrink=False, seed=seed
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
    rows = []
    for dtype in (torch.float32, torch.float64):
        before, after = predict(whole.to(dtype), images), predict(small.to(dtype), images)
        num_changed = int((before.argmax(1) != after.argmax(1)).sum())
        accuracies = [100 * float((outputs.argmax(1) == images.test_labels).float().mean()) for outputs in (before, after)]
        difference = float((before - after).abs().max() / before.abs().max())
        rows.append(
            (
                f"ResNet-{depth}",
                images.name,
                f"{keep:g}",
                f"{share:.4f}",
                str(dtype).removeprefix("torch."),
                len(before),
                f"{accuracies[0]:.2f} -> {accuracies[1]:.2f}",
                f"{difference:.0e}",
                num_changed,
                yes(num_changed == 0),
            )
        )
    return rows
