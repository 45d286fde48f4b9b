"""Laws of timing: calls take turns, percentiles lie within what was measured, models keep their mode."""

import pytest
import torch
from torch import nn

from trainonce.engines import timing
from trainonce.engines.counting import count_bytes, count_macs, count_parameters
from trainonce.engines.runtimes import ENGINES, is_out_of_memory, prepare
from trainonce.engines.timing import (
    FEWEST_CALLS,
    WARM_UP_CALLS,
    TooSlowError,
    measure_latency,
    summarize,
    time_in_turns,
)


class Clock:
    """A clock that stands still, but for the calls that move it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def call(self, *seconds: float):
        left = iter(seconds)

        def run() -> None:
            self.now += next(left)

        return run


def test_every_call_has_its_turn_and_warm_up_does_not_count(monkeypatch: pytest.MonkeyPatch):
    clock, order = Clock(), []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    slow = clock.call(*[5.0] * WARM_UP_CALLS, *[0.4] * FEWEST_CALLS)
    fast = clock.call(*[9.0] * WARM_UP_CALLS, *[0.1, 0.2, 0.3, 0.4, 0.5])
    calls = {"slow": lambda: (order.append("slow"), slow()), "fast": lambda: (order.append("fast"), fast())}
    found = time_in_turns(calls, seconds=0.0)
    assert order[2 * WARM_UP_CALLS :] == ["slow", "fast"] * FEWEST_CALLS
    assert found["slow"].median == pytest.approx(400)
    assert found["fast"].median == pytest.approx(300)
    assert found["fast"].low == pytest.approx(140)
    assert found["fast"].high == pytest.approx(460)


def test_timing_goes_on_until_the_seconds_are_over(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    counted = []

    def call() -> None:
        counted.append(1)
        clock.now += 0.25

    time_in_turns({"one": call}, seconds=10.0)
    assert len(counted) == WARM_UP_CALLS + 40


@pytest.mark.parametrize("times", [[1.0, 2.0], [3.0] * 7, [float(value) for value in range(100)]])
def test_percentiles_lie_within_what_was_measured_and_do_not_fall(times: list[float]):
    found = summarize(times)
    assert min(times) <= found.low <= found.median <= found.high <= max(times)


def test_a_model_is_timed_in_eval_mode_and_gets_its_mode_back_even_if_it_fails():
    modes = []

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            modes.append(self.training)
            if len(modes) > WARM_UP_CALLS:
                raise RuntimeError("broken")
            return x

    model = Net().train()
    with pytest.raises(RuntimeError, match="broken"):
        measure_latency({"one": model}, torch.zeros(1), seconds=0.0)
    assert modes == [False] * len(modes)
    assert model.training


def test_counts_are_those_of_a_layer():
    layer = nn.Linear(12, 5)
    assert count_macs(layer, torch.randn(3, 12)) == 3 * 12 * 5
    assert count_parameters(layer) == 65
    assert count_bytes(layer) == 4 * 65


@pytest.mark.parametrize(
    "inputs", [(torch.ones(2, 4), torch.ones(2, 4)), {"b": torch.ones(2, 4), "a": torch.ones(2, 4)}]
)
def test_models_of_several_inputs_are_counted(inputs):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.layer(a + b)

    assert count_macs(Two(), inputs) == 2 * 4 * 3


def test_a_model_that_needs_values_has_no_count():
    class Asking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum().item() > 0 else x

    assert count_macs(Asking(), torch.ones(2)) is None


def test_every_engine_has_a_name_and_eager_is_the_model_itself():
    model = nn.Linear(2, 2)
    assert ENGINES == ("eager", "compiled", "onnxruntime")
    assert prepare("eager", model, torch.ones(1, 2)) is model
    assert not model.training


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA"), True),
        (RuntimeError("can't allocate memory: 9 bytes"), True),
        (RuntimeError("shape mismatch"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_errors(error: Exception, expected: bool):
    assert is_out_of_memory(error) is expected


def test_no_call_begins_after_the_longest_time(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    calls = {name: clock.call(*[3.0] * 10) for name in ("one", "other")}
    start = clock.now
    found = time_in_turns(calls, seconds=1.0, longest=14.0)
    assert found["one"].median == pytest.approx(3000)
    assert clock.now - start <= 14.0 + 3.0


def test_calls_too_slow_to_measure_all_of_them_are_told(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    calls = {name: clock.call(*[30.0] * 10) for name in ("one", "other")}
    start = clock.now
    with pytest.raises(TooSlowError, match="within 10 s"):
        time_in_turns(calls, seconds=1.0, longest=10.0)
    assert clock.now - start == 30.0
