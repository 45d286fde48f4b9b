"""Costs per layer add up to the whole model's, and measuring leaves no trace."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from support.runs import make_data, make_net, make_settings
from trainonce.engines.counting import count_macs
from trainonce.engines.layer_costs import ELSEWHERE, count_by_module, describe_costs
from trainonce.runs.report.costs import MOST_ROWS, cost_table
from trainonce.training import fit
from trainonce.training.results import closing


class Shared(nn.Module):
    """A layer that is called twice, one that is never called, and products outside of any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(8, 8)
        self.never = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.twice(x))
        return self.body(x @ x.transpose(0, 1) @ x)


@pytest.mark.parametrize(
    "make", [make_net, Shared, lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)]
)
def test_flops_of_all_layers_are_those_of_the_model(make):
    model = make()
    example = torch.randn(2, 3, 8, 8) if make is make_net else torch.randn(3, 8)
    if isinstance(model, nn.TransformerEncoderLayer):
        example = torch.randn(1, 5, 8)
    rows = describe_costs(model, copy.deepcopy(model), example, seconds=0.0)
    total = count_macs(model, example)
    assert total
    for which in ("before", "after"):
        assert sum(row[which]["macs"] for row in rows) == total
        assert all(row[which]["ms"] >= 0 for row in rows)
        assert sum(row[which]["ms"] for row in rows) > 0


def test_work_belongs_to_the_layer_that_does_it():
    found = count_by_module(Shared(), torch.randn(3, 8))
    assert found["twice"] == 2 * 3 * 8 * 8
    assert found["body.1"] == 3 * 8 * 4
    assert found[""] == 3 * 8 * 3 + 3 * 3 * 8
    assert "never" not in found
    assert found["body"] == found["body.0"] == 0
    rows = {
        row["name"] or row["kind"]: row
        for row in describe_costs(Shared(), Shared(), torch.randn(3, 8), seconds=0)
    }
    assert rows.keys() == {"twice", "body.1", "ReLU", ELSEWHERE}


def test_measuring_leaves_the_models_as_they_were():
    small, dense = make_net().train(), make_net().eval()
    describe_costs(small, dense, torch.randn(1, 3, 8, 8), seconds=0.0)
    assert small.training
    assert not dense.training
    for module in (*small.modules(), *dense.modules()):
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


@pytest.mark.parametrize("num_layers", [3, 3 * MOST_ROWS])
def test_the_table_adds_up(num_layers: int):
    costs = [
        {
            "name": f"layers.{number}",
            "kind": "Conv2d",
            "count": 1,
            "before": {"macs": 2000 * number, "ms": 0.5 * number},
            "after": {"macs": 1000 * number, "ms": 0.25 * number},
        }
        for number in range(1, num_layers + 1)
    ]
    table = cost_table(costs)
    assert table is not None
    assert len(table.first) + len(table.rest) == num_layers
    assert table.total.milliseconds is not None
    sums = num_layers * (num_layers + 1) / 2
    assert table.total.milliseconds.before == f"{0.5 * sums:.3f}"
    assert table.total.milliseconds.after == f"{0.25 * sums:.3f}"
    shown = [float(row.milliseconds.before) for row in (*table.first, *table.rest) if row.milliseconds]
    assert sum(shown) == pytest.approx(0.5 * sums)
    if table.rest:
        assert min(shown[:MOST_ROWS]) >= max(shown[MOST_ROWS:])


def test_a_run_writes_the_costs_of_its_layers_down(tmp_path: Path):
    report = fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run").report
    for which in ("before", "after"):
        assert sum(row[which]["macs"] for row in report["costs"]) == report[which]["macs"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Cost per layer" in page


def test_what_can_not_be_timed_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("hooks are not supported")

    monkeypatch.setattr(closing, "measure_layers", refuse)
    report = fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run").report
    assert report["missing"] == {"costs per layer": "RuntimeError: hooks are not supported"}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "no costs per layer: RuntimeError: hooks are not supported" in page
    assert "Cost per layer" not in page
