"""Benchmarks of cost and growth in miniature.

Everyone trains the same steps, parts add up, sheets and figures are written.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("matplotlib", reason="pip install -e '.[dev]'")

from benchmarks.__main__ import main
from benchmarks.architectures import build_architecture, said_architecture
from benchmarks.breakdown import breakdown, shares
from benchmarks.cost import command as cost_command
from benchmarks.cost import measure as cost_measure
from benchmarks.growth.command import _slope
from benchmarks.growth.measure import measure_growth
from benchmarks.growth.subjects import FAMILIES, Subject
from benchmarks.latency import latencies_ms
from benchmarks.loops import PlainLoop, noise_batches, take_turns
from benchmarks.memory import peak_megabytes
from benchmarks.recipe import Recipe
from benchmarks.training_time import hesso_peer
from benchmarks.trainings import KEEP_FLOPS, Training, train_in_turns

STEPS, BATCH = 24, 2


@pytest.fixture(scope="module")
def trainings() -> dict[str, Training]:
    return train_in_turns(("dense", "ours"), architecture="resnet8", num_steps=STEPS, batch_size=BATCH)


def test_everyone_trains_all_steps_and_ours_ends_on_the_budget(trainings: dict[str, Training]):
    assert {name: len(training.laps) for name, training in trainings.items()} == {
        "dense": STEPS,
        "ours": STEPS,
    }
    assert trainings["dense"].share_of_flops == 1
    assert KEEP_FLOPS - 0.02 <= trainings["ours"].share_of_flops <= KEEP_FLOPS
    assert trainings["ours"].seconds > trainings["ours"].step_seconds > 0


def test_the_parts_of_a_step_add_up(trainings: dict[str, Training]):
    for lap in trainings["ours"].laps:
        parts = lap.forward_backward + lap.optimizer + lap.projection + lap.controller
        assert parts == pytest.approx(lap.wall, rel=1e-6)
    rows = breakdown(trainings["dense"].laps, trainings["ours"].laps)
    assert rows[2].startswith(f"| plain loop | {STEPS} |")
    assert sum(int(row.split("|")[2]) for row in rows[3:]) == STEPS
    assert shares(trainings["dense"].laps).endswith("projection 0.0%, controller 0.0%")


def test_turns_rotate():
    order: list[str] = []

    class Noted(PlainLoop):
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
    models = {"small": nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2)), "large": nn.Conv2d(3, 64, 5)}
    before = models["small"][1].running_mean.clone()
    found = latencies_ms(models, torch.randn(1, 3, 32, 32), seconds=0.01)
    assert found.keys() == models.keys()
    assert min(found.values()) > 0
    assert torch.equal(models["small"][1].running_mean, before)


def test_memory_is_that_of_a_process_of_its_own():
    whole, above = peak_megabytes(
        "dense", beside=("dense",), architecture="resnet8", batch_size=BATCH, num_steps=2
    )
    assert whole > above > 0


def test_the_cost_sheet_has_a_row_for_everyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch_pruning", reason="pip install -e '.[peers]'")
    monkeypatch.setattr(cost_measure, "peak_megabytes", lambda name, **_: (100.0, 50.0))
    facts = {"seconds": 2.0, "once": 1.0, "cpu": 1.0, "share": 0.45, "latencies": [1.0, 2.0]}
    monkeypatch.setattr(
        cost_measure, "measure_hesso", lambda *_, **__: {"dense": facts, "hesso": facts, "versions": ""}
    )
    monkeypatch.setattr(cost_command, "python_of_peer", lambda given: Path("python"))
    sizes = [
        "--model",
        "resnet8",
        "--steps",
        str(STEPS),
        "--batch-size",
        "2",
        "--latency-seconds",
        "0",
        "--memory-repeats",
        "1",
    ]
    assert main(["cost", *sizes, "--out", str(tmp_path / "cost.md")]) == 0
    page = (tmp_path / "cost.md").read_text()
    assert (
        "| ResNet-8, HESSO, its environment | 2.0 (1.00) | 1.0 | 1.0 (1.00) | 100 (1.00) | 50 (1.00) | 1.00 "
        "(1.00) | 2.00 (1.00) | 0.450 |" in page
    )
    for name in ("dense", "ours", "Torch-Pruning"):
        assert f"| ResNet-8, {name} |" in page
    assert "| ours, search, controller learns |" in page


def test_torch_pruning_pays_for_its_pruning_not_for_our_counting():
    pytest.importorskip("torch_pruning", reason="pip install -e '.[peers]'")
    found = train_in_turns(("torch_pruning",), architecture="resnet8", num_steps=2, batch_size=BATCH)[
        "torch_pruning"
    ]
    assert KEEP_FLOPS - 0.02 <= found.share_of_flops <= KEEP_FLOPS
    assert 0 < found.once == found.loop.setup_seconds


def test_a_peer_that_fails_is_said_not_skipped(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no such package' >&2\nexit 3\n")
    python.chmod(0o755)
    found = hesso_peer.measure_hesso(
        python, architecture="resnet8", num_steps=1, batch_size=1, advance=lambda: None
    )
    assert found == {"failure": "no such package"}


def test_growth_writes_a_sheet_data_and_a_figure(tmp_path: Path):
    sizes = ["--family", "resnet", "--members", "1", "--repeats", "1", "--pulls", "1"]
    assert main(["growth", *sizes, "--out", str(tmp_path / "growth.md")]) == 0
    assert "| ResNet-20 | 272,474 | 14 | 448 |" in (tmp_path / "growth.md").read_text()
    assert (
        (tmp_path / "growth" / "growth.csv")
        .read_text()
        .splitlines()[1]
        .startswith("ResNet,ResNet-20,272474,14,448,")
    )
    assert (tmp_path / "growth" / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_without_weights_nothing_is_pulled():
    def build():
        with torch.device("meta"):
            return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(1, 4)

    found = measure_growth(Subject("linear", "on meta", build), num_repeats=1, num_pulls=1)
    assert found.num_parameters == 4 * 8 + 8 + 8 * 2 + 2
    assert found.projection is None


def test_families_grow():
    assert [subject.name for subject in FAMILIES["resnet"]] == [
        f"ResNet-{depth}" for depth in (20, 32, 44, 56, 110)
    ]
    assert all(len({subject.family for subject in members}) == 1 for members in FAMILIES.values())


def test_the_exponent_is_that_of_the_law():
    assert _slope([(size, 3 * size**1.5) for size in (1e3, 1e4, 1e6)]) == "1.50"
    assert _slope([(1e3, 1.0)]) == "-"
