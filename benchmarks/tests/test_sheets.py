"""Sheets end with bars that a figure can be looked up in, and that are missed when something is wrong."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.budget.command import summarise as summarise_budgets
from benchmarks.budget.measure import Kept
from benchmarks.demo.command import judge as judge_demo
from benchmarks.figures import Figure, look_up
from benchmarks.kills.killing import leftovers, look_at, same_files
from benchmarks.loading import command as loading
from benchmarks.loading.measure import Steps, Subject
from benchmarks.predictions.command import Compared
from benchmarks.predictions.command import summarise as summarise_predictions
from trainonce.storage.atomic import draft_of
from trainonce.storage.checkpoint import save_checkpoint

KEPT = Kept(0.5, found=0.495, next_unit=0.001, same_predictions=True, difference=1e-7)
COMPARED = Compared(20, "digits", 0.5, 0.49, torch.float32, 360, (98.0, 98.0), 1e-7, 0)


def run_benchmark(words: list[str], out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words, "--out", str(out)])
    return main([*words, "--out", str(out)])


def cell(page: Path, row: str, column: str = "found") -> str:
    return look_up(Figure("", page.stem, (row, column)), page.parent)


def test_a_small_run_of_the_budgets_can_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "budget.md"
    words = ["budget", "--only", "ResNet-20", "--keep", "0.5", "--keep", "0.0001", "--steps", "10"]
    assert run_benchmark(words, page, monkeypatch) == 0
    assert cell(page, "budgets met") == "1 of 1"
    assert cell(page, "budgets refused before training") == "1"
    assert cell(page, "same classes before and after the cut", "met") == "yes"
    assert float(cell(page, "largest difference of an output across the cut")) < 1e-4


@pytest.mark.parametrize(
    ("wrong", "row"),
    [
        (replace(KEPT, found=0.501), "small models above their budget"),
        (replace(KEPT, found=0.4), "budgets met"),
        (replace(KEPT, same_predictions=False), "same classes before and after the cut"),
        (replace(KEPT, difference=1e-3), "largest difference of an output across the cut"),
    ],
)
def test_a_broken_budget_misses_its_bar(wrong: Kept, row: str):
    assert all(is_met for *_, is_met in summarise_budgets([KEPT]))
    assert row in [what for what, _, _, is_met in summarise_budgets([KEPT, wrong]) if not is_met]


def test_a_small_run_of_the_predictions_can_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "predictions.md"
    assert (
        run_benchmark(["predictions", "--depth", "8", "--keep", "0.5", "--steps", "10"], page, monkeypatch)
        == 0
    )
    assert cell(page, "predictions that change across the cut") == "0 of 720"
    assert float(cell(page, "largest difference in float32")) < 1e-4
    assert float(cell(page, "largest difference in float64")) < 1e-9


def test_a_small_run_of_the_loading_can_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "loading.md"
    monkeypatch.setattr(loading, "SUBJECTS", (Subject(8, 8, 16),))
    # So few steps say nothing about the bar.
    assert run_benchmark(["loading", "--turns", "1"], page, monkeypatch) in (0, 1)
    speed = float(cell(page, "speed with real data, of that with a constant batch, least of all"))
    assert cell(page, "ResNet-8", "speed with real data") == f"{speed:.3f}"
    assert Steps(constant_ms=9.0, real_ms=10.0).speed == pytest.approx(0.9)


def test_a_changed_prediction_misses_its_bar():
    assert all(is_met for *_, is_met in summarise_predictions([COMPARED]))
    for wrong, row in (
        (replace(COMPARED, num_changed=1), "predictions that change across the cut"),
        (replace(COMPARED, precision=torch.float64, difference=1e-8), "largest difference in float64"),
    ):
        assert [what for what, _, _, is_met in summarise_predictions([COMPARED, wrong]) if not is_met] == [
            row
        ]


def test_a_demo_that_breaks_a_promise_misses_its_bar():
    report = {"before": {"macs": 100}, "after": {"macs": 44, "top1": 97.0}, "baseline": {"top1": 97.5}}
    report["agreement"] = {"num_same": 360, "num_samples": 360}
    onnx = "model.onnx: same classes on all 360 validation samples, largest difference 1e-07"

    def missed(changes: dict[str, Any], **others: Any) -> list[str]:
        bars = judge_demo(report | changes, **({"seconds": 60.0, "onnx": onnx} | others))
        return [what for what, _, _, is_met in bars if not is_met]

    assert missed({}) == []
    assert missed({}, seconds=121.0) == ["seconds"]
    assert missed({"after": {"macs": 46, "top1": 97.0}}) == ["FLOPs of the small model, of the whole one's"]
    assert missed({"baseline": {"top1": 98.1}}) == ["accuracy of the small model and of the whole one"]
    assert missed({"agreement": {"num_same": 359, "num_samples": 360}}) == [
        "predictions that are the same across the cut"
    ]
    assert missed({}, onnx="") == ["classes on which ONNX Runtime agrees"]


@pytest.mark.timeout(900)
def test_a_killed_run_can_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "kills.md"
    # Two kills may both miss the saves, which is a missed bar.
    assert run_benchmark(["kills", "--kills", "2", "--epochs", "1"], page, monkeypatch) in (0, 1)
    assert cell(page, "files of the small model equal to the bit", "met") == "yes"
    assert cell(page, "records of all epochs equal, but for the seconds") == "yes"
    assert cell(page, "half-written files left at the end") == "none"
    assert cell(page, "whole checkpoints that can't be read after a kill") == "0"
    assert str(tmp_path) not in page.read_text()


def test_what_a_kill_leaves_is_seen(tmp_path: Path):
    assert look_at(tmp_path).step is None
    for step in (3, 4):
        save_checkpoint(tmp_path / "checkpoints", step, {"x": torch.ones(2)}, keep_last=2)
    assert (look_at(tmp_path).step, look_at(tmp_path).was_saving, look_at(tmp_path).unreadable) == (
        4,
        False,
        (),
    )
    draft = draft_of(tmp_path / "checkpoints" / "step-000000005")
    draft.mkdir()
    (tmp_path / "checkpoints" / "step-000000004" / "state.json").write_text("{")
    assert look_at(tmp_path).was_saving
    assert len(look_at(tmp_path).unreadable) == 1
    assert leftovers(tmp_path) == [f"checkpoints/{draft.name}"]


def test_a_small_model_that_differs_is_seen(tmp_path: Path):
    for name, content in (("one", "1"), ("other", "2")):
        (tmp_path / name / "small").mkdir(parents=True)
        (tmp_path / name / "small" / "plan.json").write_text("{}")
        (tmp_path / name / "small" / "model.safetensors").write_text(content)
    assert same_files(tmp_path / "one", tmp_path / "other") == ["plan.json"]
