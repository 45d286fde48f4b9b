"""Experts multiplied by group: hidden units go in whole pieces of memory, whole experts never."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import trainonce
from trainonce.errors import PlanError
from trainonce.execution.grouping import GROUPED, grouped_in_double
from trainonce.pruning.budget import Budget
from trainonce.pruning.units import Units

pytestmark = pytest.mark.skipif(
    not GROUPED or not hasattr(torch.nn.functional, "grouped_mm"), reason="this torch has no product by group"
)


class GroupedExperts(nn.Module):
    def __init__(self, width: int, hidden: int, count: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, 2 * hidden, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, width, hidden) / hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        weights, numbers = self.router(x).softmax(-1).topk(2, dim=-1)
        chosen, order = numbers.flatten().sort()
        ends = torch.histc(chosen.float(), self.up.shape[0], 0, self.up.shape[0] - 1)
        ends = ends.cumsum(0).to(torch.int32)
        up, down = self.up.transpose(1, 2), self.down.transpose(1, 2)
        rows = torch.nn.functional.grouped_mm(x[order // 2].to(up.dtype), up, offs=ends)
        gate, value = rows.chunk(2, dim=-1)
        rows = torch.nn.functional.grouped_mm(gate.sigmoid() * gate * value, down, offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return x + (rows * weights.flatten()[order, None])[back].view(len(x), 2, -1).sum(1)


def net(width: int = 16, hidden: int = 24) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, width), GroupedExperts(width, hidden), nn.Linear(width, 4))
    return model, torch.randn(10, 6)


@pytest.mark.parametrize(("width", "hidden", "step"), [(16, 24, 8), (16, 20, 4), (12, 24, 8)])
def test_hidden_units_and_stream_go_in_pieces_that_the_kernel_takes(width: int, hidden: int, step: int):
    model, x = net(width, hidden)
    partition = trainonce.inspect(model, x)
    steps = {group.name: group.step for group in partition.prunable_groups}
    assert steps["1"] == step
    assert steps["0"] == (8 if width % 8 == 0 else 4)
    for seed in range(5):
        small = copy.deepcopy(model)
        plan = trainonce.Plan.random(partition, keep=0.45, seed=seed)
        trainonce.silence(small, plan)
        before = small(x)
        # In float32, with torch's own kernel.
        trainonce.cut(small, plan)
        assert torch.allclose(small(x), before, atol=1e-5)
        assert small[1].down.shape[2] % step == 0


def test_a_choice_that_the_kernel_refuses_is_refused_in_words():
    model, x = net()
    partition = trainonce.inspect(model, x)
    mask = torch.ones(24)
    mask[13:] = 0
    with pytest.raises(PlanError, match=r"^the plan keeps 13 channels of '1'[^\n]*multiples of 8[^\n]*$"):
        trainonce.Plan.from_masks(partition, {"1": mask})


@pytest.mark.parametrize("share", [0.4, 0.5, 0.6, 0.8])
def test_a_budget_is_met_in_pieces(share: float):
    model, x = net(32, 64)
    partition = trainonce.inspect(model, x)
    units = Units.of(partition, {name for name, _ in model.named_parameters()})
    budget = Budget.of_flops(units, share, None)
    masks = budget.choose(torch.rand(len(units), generator=torch.Generator().manual_seed(1)))
    assert budget.share_of(masks) <= share
    assert all(
        int(count) % group.step == 0
        for group, count in zip(units.groups, units.per_group(masks), strict=True)
    )


def test_whole_experts_stay_and_the_reason_says_why():
    model, x = net()
    reasons = {group.kept_because for group in trainonce.inspect(model, x).groups}
    assert "1 picks experts by data: one at zero would still be picked" in reasons


@pytest.mark.parametrize("sizes", [(0, 4, 4, 7), (3, 3, 3, 9), (9, 9, 9, 9)])
def test_float64_gives_what_torch_gives(sizes: tuple[int, ...]):
    ends = torch.tensor(sizes, dtype=torch.int32)
    rows, matrices = torch.randn(sizes[-1], 8), torch.randn(4, 8, 12)
    wanted = torch.nn.functional.grouped_mm(rows, matrices, offs=ends)
    found = grouped_in_double(rows.double(), matrices.double(), ends)
    assert torch.allclose(found.float(), wanted, atol=1e-5)


def test_float64_refuses_what_torch_refuses():
    ends = torch.tensor([2, 5], dtype=torch.int32)
    for rows, matrices in (
        (torch.randn(5, 6), torch.randn(2, 6, 8)),
        (torch.randn(5, 8), torch.randn(2, 8, 6)),
    ):
        with pytest.raises(RuntimeError):
            torch.nn.functional.grouped_mm(rows, matrices, offs=ends)
        with pytest.raises(RuntimeError):
            grouped_in_double(rows.double(), matrices.double(), ends)


def test_a_run_prunes_experts():
    model, x = net(16, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=x,
        total_steps=30,
        keep_flops=0.6,
        policy=trainonce.policies.FilterNorm(),
        schedule=trainonce.Schedule(search_from=2, settle_from=12, update_every=1),
    )
    for _ in range(30):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    small = pruner.finish()
    assert small[1].down.shape[2] < 32
    assert small(x).isfinite().all()
