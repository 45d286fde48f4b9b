"""Wrong input is refused in one line that says what to do, and the model stays as it was."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import trainonce
from graphs.necks import ConvNormRelu
from graphs.subjects import snapshot
from trainonce.structure.plan_fields import PLAN_VERSION

EXAMPLE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def image_model(width: int = 12) -> nn.Module:
    return nn.Sequential(ConvNormRelu(3, width), ConvNormRelu(width, 8), nn.Conv2d(8, 4, 1))


def refused(function: Callable[[], Any], model: nn.Module, kind: type[ValueError] = ValueError) -> str:
    """The message with which `function` fails; checks that it is one line and that the model is unchanged."""
    before = snapshot(model)
    with pytest.raises(kind) as caught:
        function()
    message = str(caught.value)
    assert message.strip()
    assert "\n" not in message
    assert snapshot(model) == before
    return message


def partition_of(model: nn.Module) -> trainonce.Partition:
    return trainonce.inspect(model, EXAMPLE)


def test_model_without_parameters():
    model = nn.Sequential(nn.ReLU(), nn.Flatten())
    assert "parameters" in refused(lambda: trainonce.inspect(model, EXAMPLE), model)


@pytest.mark.parametrize(
    "model", [None, "resnet18", nn.Linear, lambda x: x], ids=["none", "text", "class", "function"]
)
def test_what_is_no_model(model: Any):
    assert f"got {type(model).__name__}" in refused(lambda: trainonce.inspect(model, EXAMPLE), nn.Identity())


@pytest.mark.parametrize(
    "example", [None, 3, "image", [EXAMPLE], EXAMPLE.numpy()], ids=["none", "number", "text", "list", "array"]
)
def test_what_is_no_example(example: Any):
    model = image_model()
    assert "example" in refused(lambda: trainonce.inspect(model, example), model)


@pytest.mark.parametrize(
    "example",
    [
        torch.randn(2, 5, 8, 8),
        torch.randn(3),
        torch.randint(5, (2, 3, 8, 8)),
        (),
        {},
        (EXAMPLE, EXAMPLE),
        {"picture": EXAMPLE},
        torch.randn(0, 3, 8, 8)[0:0, :0],
        EXAMPLE.double(),
    ],
    ids=[
        "channels",
        "axes",
        "integers",
        "no_input",
        "no_keyword",
        "two_inputs",
        "unknown_keyword",
        "empty",
        "precision",
    ],
)
def test_example_that_the_model_rejects(example: Any):
    model = image_model()
    assert "example" in refused(lambda: trainonce.inspect(model, example), model)


def test_model_that_always_fails():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("first line\nsecond line")

    model = Broken()
    assert "first line" in refused(lambda: trainonce.inspect(model, EXAMPLE), model)


def test_protect_that_matches_nothing():
    model = image_model()
    assert "layer9" in refused(lambda: trainonce.inspect(model, EXAMPLE, protect=["layer9.*"]), model)


def test_protect_that_is_one_text():
    model = image_model()
    assert "protect" in refused(lambda: trainonce.inspect(model, EXAMPLE, protect="1.*"), model)


def test_protected_modules_stay_whole():
    model = image_model()
    kept = {
        group.name: group.kept_because for group in trainonce.inspect(model, EXAMPLE, protect=["0.0"]).groups
    }
    free = {group.name: group.kept_because for group in partition_of(model).groups}
    changed = [name for name in free if free[name] is None and kept[name] is not None]
    assert len(changed) == 1
    assert kept[changed[0]]


@pytest.mark.parametrize("share", [0, 0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_impossible_share(share: float):
    model = image_model()
    partition = partition_of(model)
    assert "keep" in refused(lambda: trainonce.Plan.random(partition, keep=share), model)


def first_group(partition: trainonce.Partition) -> trainonce.ChannelGroup:
    return partition.prunable_groups[0]


def test_masks_for_an_unknown_group():
    model = image_model()
    partition = partition_of(model)
    masks = {"conv77": torch.ones(12, dtype=torch.bool)}
    assert "conv77" in refused(
        lambda: trainonce.Plan.from_masks(partition, masks), model, trainonce.PlanError
    )


@pytest.mark.parametrize("length", [0, 1, 11, 13])
def test_masks_of_the_wrong_length(length: int):
    model = image_model()
    partition = partition_of(model)
    masks = {first_group(partition).name: torch.ones(length, dtype=torch.bool)}
    message = refused(lambda: trainonce.Plan.from_masks(partition, masks), model, trainonce.PlanError)
    assert first_group(partition).name in message


def test_masks_that_empty_a_layer():
    model = image_model()
    partition = partition_of(model)
    masks = {first_group(partition).name: torch.zeros(first_group(partition).num_channels, dtype=torch.bool)}
    message = refused(lambda: trainonce.Plan.from_masks(partition, masks), model, trainonce.PlanError)
    assert first_group(partition).name in message


def test_masks_that_cut_what_is_kept():
    model = image_model()
    partition = partition_of(model)
    kept = [group for group in partition.groups if group.kept_because is not None]
    assert kept
    mask = torch.ones(kept[0].num_channels, dtype=torch.bool)
    mask[0] = False
    message = refused(
        lambda: trainonce.Plan.from_masks(partition, {kept[0].name: mask}), model, trainonce.PlanError
    )
    assert f"{kept[0].name!r} may not be cut: {kept[0].kept_because}" in message


def test_cost_of_an_unknown_group():
    model = image_model()
    partition = partition_of(model)
    assert "conv77" in refused(lambda: trainonce.cost.macs(partition, {"conv77": torch.ones(3)}), model)


def test_cost_of_a_mask_of_the_wrong_length():
    model = image_model()
    partition = partition_of(model)
    masks = {first_group(partition).name: torch.ones(first_group(partition).num_channels + 1)}
    assert first_group(partition).name in refused(lambda: trainonce.cost.macs(partition, masks), model)


@pytest.mark.parametrize("action", [trainonce.cut, trainonce.silence])
@pytest.mark.parametrize(
    "other",
    [image_model(16), nn.Sequential(nn.Linear(3, 3)), nn.Sequential(*image_model(), nn.Conv2d(4, 4, 1))],
    ids=["width", "class", "layers"],
)
def test_plan_for_another_model(action: Callable, other: nn.Module):
    plan = trainonce.Plan.random(partition_of(image_model()), keep=0.5)
    assert "the plan was made for" in refused(lambda: action(other, plan), other, trainonce.PlanError)


@pytest.mark.parametrize("action", [trainonce.cut, trainonce.silence])
def test_plan_used_twice(action: Callable):
    model = image_model()
    plan = trainonce.Plan.random(partition_of(model), keep=0.5)
    trainonce.cut(model, plan)
    words = refused(lambda: action(model, plan), model, trainonce.PlanError)
    expected = (
        "has already been applied to this model" if action is trainonce.cut else "this one has (6, 3, 3, 3)"
    )
    assert expected in words


def test_optimizer_of_another_model():
    model = image_model()
    plan = trainonce.Plan.random(partition_of(model), keep=0.5)
    optimizer = torch.optim.SGD(image_model().parameters(), lr=0.1)
    assert "trains none of the model's parameters" in refused(
        lambda: trainonce.cut(model, plan, optimizer=optimizer), model
    )


def damaged_plans() -> dict[str, str]:
    plan = trainonce.Plan.random(partition_of(image_model()), keep=0.5)
    good = json.loads(plan.to_json())
    name, axis, kept, silenced = good["cuts"][0]
    return {
        "empty": "",
        "not_json": "{'version': 1",
        "truncated": plan.to_json()[:-20],
        "list": "[1, 2]",
        "number": "3",
        "null": "null",
        "no_version": json.dumps({key: value for key, value in good.items() if key != "version"}),
        "newer": json.dumps(good | {"version": PLAN_VERSION + 1}),
        "missing_field": json.dumps({key: value for key, value in good.items() if key != "cuts"}),
        "wrong_type": json.dumps(good | {"cuts": "all"}),
        "negative_axis": json.dumps(good | {"cuts": [[name, -1, kept, silenced]]}),
        "text_positions": json.dumps(good | {"cuts": [[name, axis, ["0", "1"], silenced]]}),
        "deep": "[" * 100_000,
    }


@pytest.mark.parametrize("name", list(damaged_plans()))
def test_damaged_plan_is_not_read(name: str):
    text = damaged_plans()[name]
    message = refused(lambda: trainonce.Plan.from_json(text), nn.Identity(), trainonce.PlanError)
    assert re.search(r"not valid JSON|not a plan|has version 4|is damaged", message)


@pytest.mark.parametrize(
    "positions", [[], [0, 0], [3, 1], [0, 999]], ids=["none", "twice", "unsorted", "outside"]
)
def test_plan_with_impossible_positions(positions: list[int]):
    model = image_model()
    data = json.loads(trainonce.Plan.random(partition_of(model), keep=0.5).to_json())
    data["cuts"][0][2] = positions

    def cut_by_text() -> None:
        trainonce.cut(model, trainonce.Plan.from_json(json.dumps(data)))

    assert data["cuts"][0][0] in refused(cut_by_text, model, trainonce.PlanError)


def test_plan_with_an_unknown_tensor():
    model = image_model()
    data = json.loads(trainonce.Plan.random(partition_of(model), keep=0.5).to_json())
    data["cuts"][0][0] = "nowhere.weight"
    plan = trainonce.Plan.from_json(json.dumps(data))
    assert "nowhere.weight, which doesn't exist" in refused(
        lambda: trainonce.cut(model, plan), model, trainonce.PlanError
    )


def test_plan_that_cuts_half_of_what_belongs_together():
    model = image_model()
    plan = trainonce.Plan.random(partition_of(model), keep=0.5)
    damaged = dataclasses.replace(plan, cuts=plan.cuts[:1])
    assert "the cut model does not run" in refused(
        lambda: trainonce.cut(model, damaged), model, trainonce.PlanError
    )
