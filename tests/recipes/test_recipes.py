"""The recipes are the paper's rows.

Budgets follow from the counted FLOPs, and schedules scale with the epochs.
"""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from torch import nn

from trainonce.recipes.catalogue import find_recipe, recipe, recipe_names
from trainonce.recipes.paper import ROWS, Row
from trainonce.recipes.run import Run, check_run, scale_epochs
from trainonce.training.loop.learning_rate import learning_rate
from trainonce.zoo.sources import Build, build


def count_layers(row: Row) -> dict[str, int]:
    """Multiply-adds of every convolution and linear layer, from its output's shape."""
    classes = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}[row.data]
    with torch.device("meta"):
        source = build(row.model, wanted=Build(num_classes=classes))
    macs: dict[str, int] = {}
    for name, module in source.model.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(
                lambda layer, _, output, name=name: macs.__setitem__(
                    name, output[0].numel() * layer.weight[0].numel()
                )
            )
    source.model(torch.empty(source.example.shape, device="meta"))
    return macs


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_the_budget_follows_from_counted_layers_and_meets_the_papers_figure(row: Row):
    macs = count_layers(row)
    fixed = sum(
        count
        for name, count in macs.items()
        if any(fnmatchcase(name, pattern) for pattern in row.fixed_layers)
    )
    assert (fixed, sum(macs.values())) == (row.fixed_macs, row.total_macs)
    assert 100 * (1 - row.keep_flops) == pytest.approx(row.removed_by_paper, abs=0.8)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_a_run_that_could_start(name: str):
    run = find_recipe(name)
    assert run.is_pruning
    if run.data != "imagenet":
        check_run(run)


def test_every_row_of_the_papers_tables_has_a_recipe():
    assert {row.recipe for row in ROWS} <= set(recipe_names())
    assert len(ROWS) == 11


@pytest.mark.parametrize(
    "run",
    [
        find_recipe("imagenet.resnet50"),
        Run(epochs=90, sched="step", decay_epochs=(30.0, 60.0), warmup_epochs=5),
    ],
)
def test_scaled_runs_are_the_same_curve(run: Run):
    short = scale_epochs(run, run.epochs // 10)
    for share in (0.0, 0.01, 0.2, 0.4, 0.9):
        long_rate = learning_rate(run, int(share * run.epochs * 100), 100)
        assert learning_rate(short, int(share * short.epochs * 1000), 1000) == pytest.approx(
            long_rate, rel=0.02
        )


def test_the_page_lists_every_row_with_its_arithmetic():
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    for row in ROWS:
        assert (
            f"| {row.keep_flops} | {row.baseline_top1} -> {row.pruned_top1} | `trainonce train {row.recipe}` "
            "|" in page
        )
        assert (
            f"= {row.keep_flops}, so {100 * (1 - row.keep_flops):.1f} % removed | {row.removed_by_paper} % |"
            in page
        )


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="already"):
        recipe("digits.resnet20")(Run)
