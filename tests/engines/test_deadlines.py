"""Laws of deadlines: what takes longer ends with the error given, also inside code that catches all."""

import signal
import threading
import time

import pytest

from trainonce.engines.deadlines import can_interrupt, interrupted_after
from trainonce.errors import EngineError

pytestmark = pytest.mark.skipif(not can_interrupt(), reason="there are no signals here")


def wait() -> None:
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            raise AssertionError("the end was caught on its way") from None


def test_a_block_that_takes_longer_ends_with_the_error():
    with pytest.raises(EngineError, match="too long"), interrupted_after(0.05, EngineError("too long")):
        wait()


def test_a_block_in_time_is_left_alone_and_nothing_rings_later():
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    with interrupted_after(60, EngineError("too long")):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    # The alarm of whoever else has one, such as a limit of this test, still rings in time.
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    assert (left > 0) == (timer > 0)
    assert left <= timer
    assert signal.getsignal(signal.SIGALRM) is before


def test_on_another_thread_nothing_is_interrupted():
    found = []

    def run() -> None:
        with interrupted_after(0.001, EngineError("too long")):
            time.sleep(0.02)
        found.append(can_interrupt())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [False]
