"""Benchmarks of time measure what they say: equal loops have the ratio 1, parts add up, turns rotate."""

import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("matplotlib", reason="pip install -e '.[dev]'")

from benchmarks.__main__ import main
from benchmarks.harness.architectures import build_architecture, said_architecture
from benchmarks.harness.recipe import Recipe
from benchmarks.timing import cost, costs, ddp, training_time
from benchmarks.timing.breakdown import breakdown, shares
from benchmarks.timing.ddp import compare, run_processes, slower_of
from benchmarks.timing.families import FAMILIES, Subject
from benchmarks.timing.growth import _slope, measure_growth
from benchmarks.timing.hesso_child import measure_hesso
from benchmarks.timing.loops import Lap, PlainLoop, latencies_ms, noise_batches, take_turns
from benchmarks.timing.memory import median_peaks
from benchmarks.timing.trainings import KEEP_FLOPS, Training, train_in_turns
from benchmarks.timing.turns import Turn

STEPS, BATCH = 24, 2


def make_turns(*, update_seconds: float = 0.0, small_share: float = 1.0) -> list[Turn]:
    """A hundred steps of a machine whose speed varies, both loops alike."""
    rng = random.Random(0)
    turns = []
    for step in range(100):
        second = 1 + 0.2 * rng.random()
        phase = "warm-up" if step < 5 else "search" if step < 30 else "settle" if step < 40 else "small"
        is_update = phase == "search" and step % 5 == 0
        ours = second * (small_share if phase == "small" else 1) + (update_seconds if is_update else 0)
        turns.append(Turn(second, ours, 2 * second, 2 * ours, phase, is_update))
    return turns


def test_ratios_see_what_is_equal_slower_and_faster():
    turns = make_turns()
    assert list(compare(turns).values()) == pytest.approx([1, 1, 1, 1])
    slow = [replace(turn, ours=1.1 * turn.ours, ours_cpu=1.1 * turn.ours_cpu) for turn in turns]
    assert list(compare(slow).values()) == pytest.approx([1.1] * 4)
    assert all(ratio < 0.8 for ratio in compare(make_turns(small_share=0.5)).values())
    # The step of a cut is left out.
    turns[39] = replace(turns[39], ours=1000.0, is_cut=True)
    assert compare(turns)["time, sum of all steps"] == pytest.approx(1)


def test_a_long_run_pays_for_fewer_updates():
    every_five, every_twenty = list(compare(make_turns(update_seconds=2.0)).values())[1:3]
    assert 1 < every_twenty < every_five
    assert (every_five - 1) / (every_twenty - 1) == pytest.approx(4, rel=0.2)


def test_the_slower_process_counts():
    turns = make_turns()
    other = [replace(turn, ours=turn.ours + 1) for turn in turns]
    merged = slower_of([turns, other])
    assert [turn.ours for turn in merged] == [turn.ours for turn in other]
    assert [turn.plain for turn in merged] == [turn.plain for turn in turns]


@pytest.mark.timeout(900)
def test_two_processes_are_measured_through_the_whole_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words = ["ddp", "--depth", "8", "--steps", "40", "--batch-size", "8", "--image-size", "8", "--out"]
    words.append(str(tmp_path / "ddp.md"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    found = []

    def run_once(*args, **settings):
        # Two processes take long on a busy machine: the run with the shrink stands for both.
        return found or found.extend(run_processes(*args, **settings | {"shrink": True})) or found

    monkeypatch.setattr(ddp, "run_processes", run_once)
    # A model this small is all overhead: whether the bar is met says nothing here.
    assert main(words) in (0, 1)
    sheet = (tmp_path / "ddp.md").read_text()
    assert "python -m benchmarks ddp --depth 8 --steps 40" in sheet
    assert str(tmp_path) not in sheet
    assert len(re.findall(r"<= 1\.05 \| \d+\.\d{3} \| (?:yes|NO)", sheet)) == 8
    rows = re.findall(r"\| with the shrink \| ([a-z, -]+) \| (\d+) \|", sheet)
    steps = {what: int(count) for what, count in rows}
    assert steps.keys() >= {"search", "search, controller learns", "search, after the first cut", "small"}
    assert steps["a cut"] == 2
    assert sum(steps.values()) == 38


@pytest.fixture(scope="module")
def trainings() -> dict[str, Training]:
    return train_in_turns(("dense", "ours"), architecture="resnet8", num_steps=STEPS, batch_size=BATCH)


def test_everyone_trains_all_steps_and_the_parts_add_up(trainings: dict[str, Training]):
    dense, ours = trainings["dense"], trainings["ours"]
    assert [len(dense.laps), len(ours.laps)] == [STEPS, STEPS]
    assert dense.share_of_flops == 1
    assert KEEP_FLOPS - 0.02 <= ours.share_of_flops <= KEEP_FLOPS
    assert ours.seconds > ours.step_seconds > 0
    for lap in ours.laps:
        parts = lap.forward_backward + lap.optimizer + lap.projection + lap.controller
        assert parts == pytest.approx(lap.wall, rel=1e-6)
    rows = breakdown(dense.laps, ours.laps)
    assert rows[2].startswith(f"| plain loop | {STEPS} |")
    assert sum(int(row.split("|")[2]) for row in rows[3:]) == STEPS
    assert shares(dense.laps).endswith("projection 0.0%, controller 0.0%")


def test_a_teacher_costs_its_answers_and_keeps_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch_pruning", reason="pip install -e '.[peers]'")
    monkeypatch.setattr(training_time, "python_of_peer", lambda given: None)
    sizes = ["--depth", "8", "--steps", str(STEPS), "--batch-size", "2"]
    # A model this small is all overhead: whether the bar is met says nothing here.
    assert main(["training_time", *sizes, "--out", str(tmp_path / "time.md")]) in (0, 1)
    page = (tmp_path / "time.md").read_text()
    assert re.search(r"\| ours, shrinking, with a teacher \| \d+\.\d \| \d+\.\d{3} \|.*\| 0\.4\d\d \|", page)
    rows = re.findall(r"\| ([a-z, -]+) \| (\d+) \| \d+ ms \| \d+ ms \| \d+\.\d{3} \|", page)
    assert {"warm-up", "search, controller learns", "small"} <= {name for name, _ in rows}
    assert sum(int(count) for _, count in rows) <= STEPS
    found = train_in_turns(("ours", "taught"), architecture="resnet8", num_steps=STEPS, batch_size=BATCH)
    teacher = found["taught"].loop.pruner.lessons.model
    num_parameters = {name: sum(map(torch.numel, run.model.parameters())) for name, run in found.items()}
    assert sum(map(torch.numel, teacher.parameters())) > max(num_parameters.values())


def test_steps_are_compared_with_those_of_their_kind():
    lap = Lap(1.0, 1.0, 0.5, 0.5, phase="search")
    plain = [lap, lap, replace(lap, is_update=True), replace(lap, phase="small"), lap]
    taught = [replace(one, wall=1.5 * one.wall) for one in plain[:4]] + [replace(lap, phase="small")]
    assert training_time.cost_of_teacher(plain, taught)[2:] == [
        "| search | 2 | 1000 ms | 1500 ms | 1.500 |",
        "| search, controller learns | 1 | 1000 ms | 1500 ms | 1.500 |",
        "| small | 1 | 1000 ms | 1500 ms | 1.500 |",
    ]


def test_turns_rotate():
    order: list[str] = []

    class Noted(PlainLoop):
        name = ""

        def step(self, batch, held):
            order.append(self.name)
            return super().step(batch, held)

    loops = {}
    for name in "abc":
        loops[name] = Noted(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)), Recipe(), 3)
        loops[name].name = name
    batches = noise_batches(2, BATCH)
    take_turns(loops, batches[:1], batches[1], advance=lambda: None)
    assert "".join(order) == "abcbcacab"


@pytest.mark.parametrize(("name", "words"), [("resnet20", "ResNet-20"), ("mobilenet_v2", "MobileNetV2")])
def test_first_weights_depend_on_the_seed_only(name: str, words: str):
    first, again, other = (build_architecture(name, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(tensor, again[key]) for key, tensor in first.items())
    assert any(not torch.equal(tensor, other[key]) for key, tensor in first.items())
    assert said_architecture(name) == words


def test_latency_is_measured_in_eval_mode_for_all():
    norm = nn.BatchNorm2d(2)
    models = {"small": nn.Sequential(nn.Conv2d(3, 2, 1), norm), "large": nn.Conv2d(3, 64, 5)}
    found = latencies_ms(models, torch.randn(1, 3, 32, 32), seconds=0.01)
    assert found.keys() == models.keys()
    assert min(found.values()) > 0
    assert norm.num_batches_tracked == 0


def test_memory_is_that_of_a_process_of_its_own():
    sizes = {"batch_size": BATCH, "num_steps": 2, "num_repeats": 1}
    whole, above = median_peaks(("dense",), architecture="resnet8", **sizes)["dense"]
    assert whole > above > 0


def test_the_cost_sheet_has_a_row_for_everyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch_pruning", reason="pip install -e '.[peers]'")
    monkeypatch.setattr(costs, "median_peaks", lambda names, **_: dict.fromkeys(names, (100.0, 50.0)))
    facts = {"seconds": 2.0, "once": 1.0, "cpu": 1.0, "share": 0.45, "latencies": [1.0, 2.0]}
    found = {"dense": facts, "hesso": facts, "versions": ""}
    monkeypatch.setattr(costs, "measure_hesso", lambda *_, **__: found)
    monkeypatch.setattr(cost, "python_of_peer", lambda given: Path("python"))
    sizes = ["--model", "resnet8", "--steps", "24", "--batch-size", "2", "--memory-repeats", "1"]
    words = ["cost", *sizes, "--latency-seconds", "0", "--out", str(tmp_path / "cost.md")]
    assert main(words) == 0
    page = (tmp_path / "cost.md").read_text()
    figures = "2.0 (1.00) | 1.0 | 1.0 (1.00) | 100 (1.00) | 50 (1.00) | 1.00 (1.00) | 2.00 (1.00) | 0.450"
    assert f"| ResNet-8, HESSO, its environment | {figures} |" in page
    for name in ("dense", "ours", "Torch-Pruning"):
        assert f"| ResNet-8, {name} |" in page
    assert "| ours, search, controller learns |" in page


def test_torch_pruning_pays_for_its_pruning_not_for_our_counting():
    pytest.importorskip("torch_pruning", reason="pip install -e '.[peers]'")
    name = "torch_pruning"
    found = train_in_turns((name,), architecture="resnet8", num_steps=2, batch_size=BATCH)[name]
    assert KEEP_FLOPS - 0.02 <= found.share_of_flops <= KEEP_FLOPS
    assert 0 < found.once == found.loop.setup_seconds


def test_a_peer_that_fails_is_said_not_skipped(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no such package' >&2\nexit 3\n")
    python.chmod(0o755)
    sizes: dict[str, Any] = {"architecture": "resnet8", "num_steps": 1, "batch_size": 1}
    assert measure_hesso(python, **sizes, advance=lambda: None) == {"failure": "no such package"}


def test_growth_writes_a_sheet_data_and_a_figure(tmp_path: Path):
    sizes = ["--family", "resnet", "--members", "1", "--repeats", "1", "--pulls", "1"]
    assert main(["growth", *sizes, "--out", str(tmp_path / "growth.md")]) == 0
    assert "| ResNet-20 | 272,474 | 14 | 448 |" in (tmp_path / "growth.md").read_text()
    data = (tmp_path / "growth" / "growth.csv").read_text().splitlines()
    assert data[1].startswith("ResNet,ResNet-20,272474,14,448,")
    assert (tmp_path / "growth" / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert all(len({subject.family for subject in members}) == 1 for members in FAMILIES.values())


def test_without_weights_nothing_is_pulled():
    def build():
        with torch.device("meta"):
            return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(1, 4)

    found = measure_growth(Subject("linear", "on meta", build), num_repeats=1, num_pulls=1)
    assert found.num_parameters == 4 * 8 + 8 + 8 * 2 + 2
    assert found.projection is None


def test_the_exponent_is_that_of_the_law():
    assert _slope([(size, 3 * size**1.5) for size in (1e3, 1e4, 1e6)]) == "1.50"
    assert _slope([(1e3, 1.0)]) == "-"
