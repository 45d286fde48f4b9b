"""Laws of runs as processes.

Killed at any moment they go on to the same bits, several decide alike, a signal loses nothing.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.runs import make_data
from trainonce.storage.checkpoint import find_newest
from trainonce.training.loop import processes

# Whole trainings in other processes: on a busy machine they take minutes, and a hang is still told from that.
PATIENCE = 600
pytestmark = pytest.mark.timeout(1200)

WORKER = Path(__file__).parents[1] / "support" / "worker.py"
SETTINGS = {"epochs": 6, "save_minutes": 0.0, "keep_checkpoints": 2}


def start(
    out: Path, settings: dict, *, rank: int = 0, world_size: int = 1, port: int = 0, trace: Path | None = None
) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(WORKER.parents[1])}
    for name in ("RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    if world_size > 1:
        environment |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        environment["LOCAL_RANK"] = str(rank)
    words = [sys.executable, str(WORKER), str(out), json.dumps(settings), *([str(trace)] if trace else [])]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, code: int = 0) -> str:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, err
    return out + err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_together(out: Path, settings: dict, *, world_size: int, trace: Path | None = None) -> None:
    port = free_port()
    processes = [
        start(out, settings, rank=rank, world_size=world_size, port=port, trace=trace)
        for rank in range(world_size)
    ]
    for process in processes:
        finish(process)


def weights_of(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "small" / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    out = tmp_path_factory.mktemp("whole") / "run"
    finish(start(out, SETTINGS | {"save_minutes": 1000.0}))
    return weights_of(out)


def wait_for_step(out: Path, step: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 150
    names = [f"step-{number:09d}" for number in range(step, step + 30)]
    while (
        process.poll() is None
        and time.monotonic() < deadline
        and not any((out / "checkpoints" / name).exists() for name in names)
    ):
        time.sleep(0.005)


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    tmp_path: Path, whole: dict[str, torch.Tensor]
):
    rng, out = random.Random(0), tmp_path / "run"
    # Every step saves, so that about half of the kills hit a save.
    for step in (2, 12, 19):
        process = start(out, SETTINGS)
        wait_for_step(out, step, process)
        time.sleep(0.05 * rng.random())
        process.kill()
        process.communicate(timeout=PATIENCE)
    finish(start(out, SETTINGS))
    assert same(weights_of(out), whole)
    assert [path.name for path in (out / "checkpoints").iterdir() if path.name.startswith(".")] == []


def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, whole: dict[str, torch.Tensor]):
    out = tmp_path / "run"
    process = start(out, SETTINGS)
    wait_for_step(out, 3, process)
    process.send_signal(signal.SIGINT)
    said = finish(process, code=75)
    assert f"out={str(out)!r}, resume=True" in said
    assert find_newest(out / "checkpoints").step >= 3
    finish(start(out, SETTINGS))
    assert same(weights_of(out), whole)


def records(trace: Path, rank: int) -> list[dict]:
    return [json.loads(line) for line in Path(f"{trace}.{rank}").read_text().splitlines()]


def test_two_processes_decide_alike_and_see_each_sample_once(tmp_path: Path):
    trace = tmp_path / "trace"
    run_together(tmp_path / "run", SETTINGS | {"save_minutes": 1000.0}, world_size=2, trace=trace)
    first, second = records(trace, 0), records(trace, 1)
    assert [record["masks"] for record in first] == [record["masks"] for record in second]
    assert len({json.dumps(record["masks"]) for record in first}) > 1
    everything = sorted((1e6 * make_data()[0][0][:, 0, 0, 0]).round().long().tolist())
    for epoch in range(6):
        seen = [
            sample
            for records_ in (first, second)
            for record in records_[4 * epoch : 4 * epoch + 4]
            for sample in record["samples"]
        ]
        assert sorted(seen) == everything


def test_two_processes_find_the_small_architecture_of_one_with_the_same_global_batch(tmp_path: Path):
    # Seven samples for the controller: the two processes get parts of different sizes.
    settings = {
        "is_plain": True,
        "epochs": 20,
        "save_minutes": 1000.0,
        "settle_from": 0.6,
        "round_to": 1,
        "controller_share": 0.11,
    }
    for world_size in (1, 2):
        run_together(
            tmp_path / f"run{world_size}",
            settings,
            world_size=world_size,
            trace=tmp_path / f"trace{world_size}",
        )
    one, two = (records(tmp_path / f"trace{world_size}", 0) for world_size in (1, 2))
    assert [record["masks"] for record in one] == [record["masks"] for record in two]
    assert len({json.dumps(record["masks"]) for record in one}) > 5
    small, other = (weights_of(tmp_path / f"run{world_size}") for world_size in (1, 2))
    assert {name: tensor.shape for name, tensor in small.items()} == {
        name: tensor.shape for name, tensor in other.items()
    }
    assert all(torch.allclose(small[name], other[name], rtol=0, atol=1e-9) for name in small)
    plans = [
        json.loads((tmp_path / f"run{world_size}" / "small" / "plan.json").read_text())
        for world_size in (1, 2)
    ]
    assert plans[0] == plans[1]


def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path):
    out, trace = tmp_path / "run", tmp_path / "trace"
    process = start(out, SETTINGS)
    wait_for_step(out, 6, process)
    process.send_signal(signal.SIGTERM)
    finish(process, code=75)
    step = find_newest(out / "checkpoints").step
    run_together(out, SETTINGS | {"save_minutes": 1000.0}, world_size=2, trace=trace)
    first, second = records(trace, 0), records(trace, 1)
    assert [record["step"] for record in first] == list(range(step, 24))
    assert [record["masks"] for record in first] == [record["masks"] for record in second]
    assert all(
        len({*one["samples"], *other["samples"]}) == 16 for one, other in zip(first, second, strict=True)
    )
    assert (out / "report.json").is_file()


def test_a_killed_worker_comes_back_from_the_checkpoint(tmp_path: Path):
    out = tmp_path / "run"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(WORKER.parents[1])}
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--monitor-interval",
        "0.1",
    ]
    words += ["--master-port", str(free_port()), str(WORKER), str(out), json.dumps(SETTINGS)]
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_step(out, 8, process)
    owner = (out / ".lock").read_text().split()
    os.kill(int(owner[1]), signal.SIGKILL)
    finish(process)
    assert (out / "report.json").is_file()
    assert "resuming at step" in (out / "log.txt").read_text()


def test_another_process_may_not_write_into_the_folder(tmp_path: Path):
    out = tmp_path / "run"
    process = start(out, SETTINGS | {"epochs": 60})
    wait_for_step(out, 1, process)
    intruder = start(out, SETTINGS | {"epochs": 60})
    said = intruder.communicate(timeout=PATIENCE)[1]
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert intruder.returncode != 0
    assert f"in use by process {process.pid}" in said


def test_processes_part_only_after_the_backend_let_go_of_their_tensors(monkeypatch):
    # A thread that drops a tensor while Python ends aborts the process; DistributedDataParallel never ends
    # those threads.
    monkeypatch.setattr(processes.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(processes.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(processes.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(processes.dist, "get_backend", lambda: "gloo")
    lent: list[weakref.ref[torch.Tensor]] = []
    threads: list[threading.Thread] = []

    def exchange(tensor: torch.Tensor, **_: object) -> None:
        held = [tensor]
        lent.append(weakref.ref(tensor))
        threads.append(threading.Thread(target=lambda: (time.sleep(0.3), held.clear())))
        threads[-1].start()

    monkeypatch.setattr(processes.dist, "all_reduce", exchange)
    monkeypatch.setattr(processes.dist, "broadcast", exchange)
    with processes.joined(torch.device("cpu")) as together:
        together.wait()
        assert together.summed([1.0]) == [1.0]
        assert together.from_first(3) == 3
        together.agree_on_weights(torch.nn.BatchNorm1d(2))
        assert len(lent) == 8
        assert any(loan() is not None for loan in lent)
    assert all(loan() is None for loan in lent)
    for thread in threads:
        thread.join()
