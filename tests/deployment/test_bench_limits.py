"""`bench` ends when it says it will, and keeps what was measured before Ctrl-C."""

import pytest
import torch
from torch import Tensor, nn

from trainonce.deployment import benching
from trainonce.deployment.benching import bench
from trainonce.engines.timing import TooSlowError
from trainonce.errors import EngineError


def measured(batch_sizes=(1, 2), engines=("eager",)) -> tuple[benching.Bench, list[str]]:
    said: list[str] = []
    found = bench(
        nn.Flatten(),
        nn.Flatten(),
        torch.randn(1, 3, 2, 2),
        batch_sizes=batch_sizes,
        engines=engines,
        seconds=0.01,
        say=said.append,
    )
    return found, said


def test_the_time_that_it_takes_is_said_first():
    _, said = measured()
    assert said[0] == "measuring 2 x 0.01 s: about 0 s, at most 20 s if calls are slow"
    line = benching._announcement(("eager", "compiled", "onnxruntime"), (1, 64), 5.0)
    assert line.startswith("measuring 6 x 5 s: about 30 s, at most 60 s if calls are slow. Exporting")
    assert line.endswith("for each of 4")


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch):
    measure, counted = benching.measure_latency, []

    def stop_at_the_second(*given: object, **settings: object):
        counted.append(1)
        if len(counted) == 2:
            raise KeyboardInterrupt
        return measure(*given, **settings)

    monkeypatch.setattr(benching, "measure_latency", stop_at_the_second)
    found, _ = measured()
    assert [row.batch_size for row in found.rows] == [1]
    assert found.is_interrupted
    assert "interrupted" in found.left_out[0]


def test_ctrl_c_before_the_first_row_ends_the_command(monkeypatch: pytest.MonkeyPatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(benching, "measure_latency", stop)
    with pytest.raises(KeyboardInterrupt):
        measured()


def test_a_batch_that_is_too_slow_is_left_out_and_others_are_measured(monkeypatch: pytest.MonkeyPatch):
    measure = benching.measure_latency

    def slow(models: object, batch: Tensor, **settings: object):
        if len(batch) == 2:
            raise TooSlowError("calls are too slow")
        return measure(models, batch, **settings)

    monkeypatch.setattr(benching, "measure_latency", slow)
    found, _ = measured(batch_sizes=(2, 1))
    assert [row.batch_size for row in found.rows] == [1]
    assert found.left_out == ("eager, batch 2: calls are too slow",)
    assert not found.is_interrupted


def test_an_engine_that_is_never_ready_is_left_out(monkeypatch: pytest.MonkeyPatch):
    def prepare(engine: str, model: nn.Module, _: Tensor) -> nn.Module:
        if engine == "compiled":
            while True:
                pass
        return model

    if not benching.can_interrupt():
        pytest.skip("there are no signals here")
    monkeypatch.setattr(benching, "prepare", prepare)
    monkeypatch.setattr(benching, "PREPARATION_SECONDS", 0.1)
    found, _ = measured(batch_sizes=(1,), engines=("compiled", "eager"))
    assert [row.engine for row in found.rows] == ["eager"]
    (line,) = found.left_out
    assert line.startswith("compiled: not ready after 0.1 s")


def test_a_limit_is_an_error_of_ours():
    assert issubclass(TooSlowError, EngineError)
