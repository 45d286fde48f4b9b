"""Sheets end with bars that a figure can be looked up in, and that are missed when something is wrong."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.figures import Figure, look_up
from benchmarks.killing.killing import leftovers, look_at, same_files
from benchmarks.promises.budget import summarise as summarise_budgets
from benchmarks.promises.budgets import Kept
from benchmarks.promises.demo import judge as judge_demo
from benchmarks.promises.predictions import Compared
from benchmarks.promises.predictions import summarise as summarise_predictions
from benchmarks.sheets.sheet import Bar
from benchmarks.timing import loading
from benchmarks.timing.loading import Steps, Subject
from trainonce.storage.atomic import draft_of
from trainonce.storage.checkpoint import save_checkpoint

KEPT = Kept(0.5, found=0.495, next_unit=0.001, same_predictions=True, difference=1e-7)
COMPARED = Compared(20, "digits", 0.5, 0.49, torch.float32, 360, (98.0, 98.0), 1e-7, 0)
REPORT = {
    "before": {"macs": 100},
    "after": {"macs": 24, "top1": 97.0},
    "baseline": {"top1": 97.5},
    "agreement": {"num_same": 360, "num_samples": 360},
}
ONNX = "model.onnx: same classes on all 360 validation samples, largest difference 1e-07"


@pytest.fixture
def sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a benchmark; gives its exit code and a function that reads the cells of its sheet."""

    def run(words: str):
        page = tmp_path / "sheet.md"
        arguments = [*words.split(), "--out", str(page)]
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        code = main(arguments)
        assert str(tmp_path) not in page.read_text()

        def cell(row: str, column: str = "found") -> str:
            return look_up(Figure("", page.stem, (row, column)), tmp_path)

        return code, cell

    return run


def missed(bars: list[Bar]) -> list[str]:
    return [what for what, _, _, is_met in bars if not is_met]


def test_a_small_run_of_the_budgets_can_be_looked_up(sheet):
    code, cell = sheet("budget --only ResNet-20 --keep 0.5 --keep 0.0001 --steps 10")
    assert code == 0
    assert cell("budgets met") == "1 of 1"
    assert cell("budgets refused before training") == "1"
    assert cell("same classes before and after the cut", "met") == "yes"
    assert float(cell("largest difference of an output across the cut")) < 1e-4


def test_a_small_run_of_the_predictions_can_be_looked_up(sheet):
    code, cell = sheet("predictions --depth 8 --keep 0.5 --steps 10")
    assert code == 0
    assert cell("predictions that change across the cut") == "0 of 720"
    assert float(cell("largest difference in float32")) < 1e-4
    assert float(cell("largest difference in float64")) < 1e-9


def test_a_small_run_of_the_loading_can_be_looked_up(sheet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "SUBJECTS", (Subject(8, 8, 16),))
    code, cell = sheet("loading --turns 1")
    assert code in (0, 1), "so few steps say nothing about the bar"
    speed = float(cell("speed with real data, of that with a constant batch, least of all"))
    assert cell("ResNet-8", "speed with real data") == f"{speed:.3f}"
    assert Steps(constant_ms=9.0, real_ms=10.0).speed == pytest.approx(0.9)


@pytest.mark.timeout(900)
def test_a_killed_run_can_be_looked_up(sheet):
    code, cell = sheet("kills --kills 2 --epochs 1")
    assert code in (0, 1), "two kills may both miss the saves, which is a missed bar"
    assert cell("files of the small model equal to the bit", "met") == "yes"
    assert cell("records of all epochs equal, but for the seconds") == "yes"
    assert cell("half-written files left at the end") == "none"
    assert cell("whole checkpoints that can't be read after a kill") == "0"


@pytest.mark.timeout(900)
def test_a_resumed_run_can_be_looked_up(sheet):
    code, cell = sheet("resume --kills 1 --steps 24 --batch-size 8")
    assert (code, cell("killed runs with the same bits at the end")) == (0, "1 of 1")
    assert cell("1", "same bits") == "yes"


@pytest.mark.parametrize(
    ("wrong", "row"),
    [
        ({"found": 0.501}, "small models above their budget"),
        ({"found": 0.4}, "budgets met"),
        ({"same_predictions": False}, "same classes before and after the cut"),
        ({"difference": 1e-3}, "largest difference of an output across the cut"),
    ],
)
def test_a_broken_budget_misses_its_bar(wrong: dict[str, Any], row: str):
    assert missed(summarise_budgets([KEPT])) == []
    assert row in missed(summarise_budgets([KEPT, replace(KEPT, **wrong)]))


def test_a_changed_prediction_misses_its_bar():
    assert missed(summarise_predictions([COMPARED])) == []
    for wrong, row in (
        (replace(COMPARED, num_changed=1), "predictions that change across the cut"),
        (replace(COMPARED, precision=torch.float64, difference=1e-8), "largest difference in float64"),
    ):
        assert missed(summarise_predictions([COMPARED, wrong])) == [row]


@pytest.mark.parametrize(
    ("changes", "others", "rows"),
    [
        ({}, {}, []),
        ({}, {"seconds": 121.0}, ["seconds"]),
        ({"after": {"macs": 26, "top1": 97.0}}, {}, ["FLOPs of the small model, of the whole one's"]),
        ({"baseline": {"top1": 98.1}}, {}, ["accuracy of the small model and of the whole one"]),
        (
            {"agreement": {"num_same": 359, "num_samples": 360}},
            {},
            ["predictions that are the same across the cut"],
        ),
        ({}, {"onnx": ""}, ["classes on which ONNX Runtime agrees"]),
    ],
)
def test_a_demo_that_breaks_a_promise_misses_its_bar(
    changes: dict[str, Any], others: dict[str, Any], rows: list[str]
):
    assert missed(judge_demo(REPORT | changes, **({"seconds": 60.0, "onnx": ONNX} | others))) == rows


def test_what_a_kill_leaves_is_seen(tmp_path: Path):
    assert look_at(tmp_path).step is None
    for step in (3, 4):
        save_checkpoint(tmp_path / "checkpoints", step, {"x": torch.ones(2)}, keep_last=2)
    found = look_at(tmp_path)
    assert (found.step, found.was_saving, found.unreadable) == (4, False, ())
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
