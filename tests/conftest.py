"""What all tests share."""

import signal
import sys
from collections.abc import Iterator

import pytest
import torch

from trainonce.training.results import outcome

# Bit-equality holds for a fixed number of threads, and child processes of tests use one.
torch.set_num_threads(1)

# Shells start background jobs with SIGINT ignored, and children inherit that; some tests send it to them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def no_long_measurement() -> Iterator[None]:
    """Runs time their models with as few calls as they may: no test looks at milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "LATENCY_SECONDS", 0.0)
        yield


@pytest.fixture(autouse=True)
def no_leftover_accelerator() -> Iterator[None]:
    """Reset what Accelerate keeps: left halfway through an accumulation, it skips the next test's steps."""
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
