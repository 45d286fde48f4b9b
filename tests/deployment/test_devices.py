"""Laws of --device.

What a command measures or compares is computed there, or the device is refused in one line.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from support.finished import make_run
from trainonce.cli import deploying, evaluating, main
from trainonce.deployment import benching, exporting
from trainonce.deployment.benching import bench
from trainonce.engines import timing

ELSEWHERE = torch.device("meta")
"""A device that every machine has; nothing is computed there, but it is known what would be."""


class Witness(nn.Module):
    """A classifier that remembers where it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)
        self.seen: set[tuple[str, str]] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add((x.device.type, self.layer.weight.device.type))
        return self.layer(x.flatten(1))


class Asked:
    """Takes the place of `choose_device`; remembers what it was asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> torch.device:
        self.names.append(name)
        return torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


def words_for(command: str, run: Path, out: Path) -> list[str]:
    extra = {
        "evaluate": [],
        "export": ["--format", "safetensors", "--out", str(out)],
        "bench": ["--engine", "eager", "--seconds", "0.01"],
    }
    return [command, str(run), *extra[command]]


COMMANDS = ["evaluate", "export", "bench"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [("cuda", "no GPU"), ("mps", "not available here"), ("toaster", "got 'toaster'"), ("meta", "got 'meta'")],
)
def test_a_device_that_is_not_there_is_refused_in_one_line(
    command: str,
    name: str,
    reason: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert main([*words_for(command, run, tmp_path / "out"), "--device", name]) == 2
    err = capsys.readouterr().err
    assert reason in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_device_that_was_asked_for_is_chosen(
    command: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = Asked()
    monkeypatch.setattr(evaluating if command == "evaluate" else deploying, "choose_device", asked)
    assert main([*words_for(command, run, tmp_path / "out"), "--device", "cuda:1"]) == 0
    assert asked.names == ["cuda:1"]


def test_bench_hands_its_device_on(run: Path, monkeypatch: pytest.MonkeyPatch):
    found = []

    def remember(*arguments, device: torch.device, **others) -> benching.Bench:
        found.append(device)
        return bench(*arguments, device=torch.device("cpu"), **others)

    monkeypatch.setattr(deploying, "choose_device", lambda _: ELSEWHERE)
    monkeypatch.setattr(deploying, "bench", remember)
    assert main(words_for("bench", run, run)) == 0
    assert found == [ELSEWHERE]


def test_both_models_are_measured_where_they_should_be():
    dense, small = Witness(), Witness()
    found = bench(
        dense,
        small,
        torch.randn(1, 3, 2, 2),
        batch_sizes=(1, 3),
        engines=("eager",),
        seconds=0.01,
        device=ELSEWHERE,
    )
    assert found.device == "meta"
    assert [row.batch_size for row in found.rows] == [1, 3]
    assert dense.seen == small.seen == {("meta", "meta")}


def test_onnx_runtime_is_left_out_elsewhere_with_the_reason():
    engines = ("onnxruntime", "eager")
    found = bench(
        Witness(),
        Witness(),
        torch.randn(1, 3, 2, 2),
        batch_sizes=(1,),
        engines=engines,
        seconds=0.01,
        device=ELSEWHERE,
    )
    assert [row.engine for row in found.rows] == ["eager"]
    assert found.left_out == ("onnxruntime: runs on the CPU only; pass --device cpu",)


def test_the_clock_waits_for_the_device(monkeypatch: pytest.MonkeyPatch):
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(f"cuda {device.index}"))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    timing.wait_for([torch.device("cuda", 1), torch.device("mps"), torch.device("cpu")])
    assert waited == ["cuda 1", "mps"]
    monkeypatch.setattr(timing, "wait_for", lambda devices: waited.extend(str(device) for device in devices))
    waited.clear()
    timing.measure_latency({"one": Witness()}, torch.randn(1, 3, 2, 2), seconds=0.0)
    # Once after the warm-up, and after each of at least five calls.
    assert waited == ["cpu"] * len(waited)
    assert len(waited) >= 6


def test_a_cpu_is_measured_without_waking_a_gpu(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a GPU was asked")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    timing.measure_latency({"one": Witness()}, torch.randn(1, 3, 2, 2), seconds=0.0)


def test_an_export_computes_where_the_model_is():
    model = Witness()
    placed = exporting._Placed(model, ELSEWHERE)
    with pytest.raises(NotImplementedError, match="meta"):
        placed(torch.randn(2, 3, 2, 2))
    assert model.seen == {("meta", "meta")}
    here = exporting._Placed(Witness(), torch.device("cpu"))
    assert here(torch.randn(2, 3, 2, 2)).shape == (2, 4)


@pytest.mark.parametrize("batch_size", ["0", "-1", "1000000000", "99999999999999999999999"])
def test_a_batch_beyond_all_bounds_is_refused(batch_size: str, run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", str(run), "--engine", "eager", "--batch-size", batch_size]) == 2
    err = capsys.readouterr().err
    assert "--batch-size must be at least 1 and at most 1048576" in err
    assert err.count("\n") == 1


def test_a_batch_that_does_not_fit_is_left_out_with_the_reason(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    measure = benching.measure_latency

    def refuse_large(models, batch: Tensor, *, seconds: float, longest: float):
        if len(batch) > 2:
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp]\nDefaultCPUAllocator: can't allocate memory: you tried to "
                "allocate 9 bytes."
            )
        return measure(models, batch, seconds=seconds, longest=longest)

    monkeypatch.setattr(benching, "measure_latency", refuse_large)
    words = ["bench", str(run), "--engine", "eager", "--seconds", "0.01", "--batch-size"]
    assert main([*words, "8", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["batch_size"] for row in found["rows"]] == [2]
    (line,) = found["left_out"]
    assert line.startswith("eager, batch 8: ")
    assert "allocate memory" in line
    assert "\n" not in line
    assert main([*words, "8"]) == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("trainonce: nothing could be measured (eager, batch 8")


def test_a_real_batch_that_does_not_fit_is_left_out():
    image = torch.randn(1, 3, 4096, 4096)
    found = bench(Witness(), Witness(), image, batch_sizes=(2**20,), engines=("eager",), seconds=0.01)
    assert found.rows == ()
    assert "allocate" in found.left_out[0]
