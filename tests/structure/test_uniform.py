"""Equal widths: groups of one role keep equally many channels, each its own, and the budget still holds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import trainonce
from trainonce.errors import ModelError, PlanError
from trainonce.pruning.budget import Budget
from trainonce.pruning.units import Units
from trainonce.structure.families import with_families
from trainonce.structure.partition import Partition


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Tower(nn.Module):
    def __init__(self, *hidden: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 12), nn.Linear(12, 4)
        self.blocks = nn.ModuleList(Block(12, number) for number in hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tower(*hidden: int) -> Partition:
    torch.manual_seed(0)
    return trainonce.inspect(Tower(*hidden), torch.randn(2, 6))


def widths(partition: Partition, plan: trainonce.Plan) -> dict[str, int]:
    return {
        group.name: len(plan.kept.get(group.name, range(group.num_channels))) for group in partition.groups
    }


def test_blocks_keep_as_many_channels_but_not_the_same_ones():
    partition = tower(40, 40, 40)
    plan = trainonce.Plan.random(partition, keep=0.3, uniform=True)
    found = [plan.kept[f"blocks.{number}.up"] for number in range(3)]
    assert {len(kept) for kept in found} == {12}
    assert len(set(found)) == 3


@pytest.mark.parametrize("seed", range(20))
def test_the_budget_holds_and_widths_agree(seed: int):
    partition = tower(40, 40, 24, 40)
    units = Units.of(
        with_families(partition, True),
        {name for name in partition.shapes if name.endswith(("weight", "bias"))},
    )
    generator = torch.Generator().manual_seed(seed)
    share = 0.2 + 0.7 * float(torch.rand((), generator=generator))
    budget = Budget.of_flops(units, share, None)
    # Each group's scores lie elsewhere, so that without families widths would differ.
    scores = torch.rand(len(units), generator=generator) + 0.3 * units.group_of
    masks = budget.choose(scores)
    counts = dict(zip((group.name for group in units.groups), units.per_group(masks).tolist(), strict=True))
    assert budget.share_of(masks) <= share
    assert counts["blocks.0.up"] == counts["blocks.1.up"] == counts["blocks.3.up"]
    assert counts["blocks.2.up"] <= 24
    best = scores[units.group_of == 1].topk(int(counts[units.groups[1].name])).values.min()
    assert bool((scores[(units.group_of == 1) & (masks > 0)] >= best).all())


def test_patterns_choose_which_groups_agree():
    partition = with_families(tower(40, 40), ["blocks.*"])
    families = {group.name: group.family for group in partition.groups if group.family is not None}
    assert families == {"blocks.0.up": "blocks.0.up", "blocks.1.up": "blocks.0.up"}


def test_a_group_that_is_kept_holds_its_likes():
    torch.manual_seed(0)
    partition = trainonce.inspect(Tower(40, 40), torch.randn(2, 6), protect=["blocks.1.up"])
    reasons = {group.name: group.kept_because for group in with_families(partition, True).groups}
    assert reasons["blocks.0.up"] == "equal widths: blocks.1.up has the same role and can't be cut"


def test_an_untrained_group_holds_its_likes():
    partition = with_families(tower(40, 40), True)
    units = Units.of(partition, {name for name in partition.shapes if not name.startswith("blocks.0")})
    assert units.kept_here["blocks.1.up"] == "equal widths: blocks.0.up is kept"


def test_without_uniform_nothing_changes():
    partition = tower(40, 40)
    assert with_families(partition, False) is partition
    assert with_families(partition, []) is partition


@pytest.mark.parametrize("uniform", ["blocks", 3, None, [1], ["nothing*"]])
def test_bad_values_are_refused_in_one_line(uniform: object):
    with pytest.raises(ModelError, match=r"^uniform[^\n]*$"):
        trainonce.Plan.random(tower(40, 40), keep=0.5, uniform=uniform)  # type: ignore[arg-type]


def test_a_run_ends_with_equal_widths():
    torch.manual_seed(0)
    model, x = Tower(40, 40, 40), torch.randn(16, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=x,
        total_steps=40,
        keep_flops=0.5,
        uniform=True,
        policy=trainonce.policies.FilterNorm(),
        schedule=trainonce.Schedule(search_from=2, settle_from=20, update_every=1),
    )
    for _ in range(40):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    small = pruner.finish()
    assert len({block.up.out_features for block in small.blocks}) == 1
    assert small.blocks[0].up.out_features < 40


def test_a_plan_with_a_setting_that_the_model_lacks_is_refused():
    partition = tower(40)
    plan = trainonce.Plan.random(partition, keep=0.5)
    data = plan.to_data() | {"version": 3, "settings": [["hidden", 40, 20, ""]]}
    with pytest.raises(PlanError, match=r"^the plan expects hidden in the model's configuration[^\n]*$"):
        trainonce.cut(Tower(40), trainonce.Plan.from_data(data))


@pytest.mark.parametrize(
    "fields", [["a", 1], ["a", "b", 2, ""], ["a", 1, -2, ""], [1, 1, 1, ""], ["a", True, 1, ""]]
)
def test_damaged_settings_are_refused(fields: list[object]):
    data = trainonce.Plan.random(tower(40), keep=0.5).to_data() | {"version": 3, "settings": [fields]}
    with pytest.raises(PlanError, match=r"^the plan is damaged[^\n]*$"):
        trainonce.Plan.from_data(data)
