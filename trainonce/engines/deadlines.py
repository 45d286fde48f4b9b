"""A limit of seconds for work that can't be told to stop, such as compiling a model."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _OverdueSignal(BaseException):
    """No Exception: code in between that catches those must not swallow it."""


def can_interrupt() -> bool:
    """Whether a limit is kept here: on the main thread, where there are signals."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def interrupted_after(seconds: float, error: Exception) -> Iterator[None]:
    """Raise the error if the block takes longer; where there are no signals, it may.

    A single call into native code is interrupted when it returns.
    """
    if not can_interrupt():
        yield
        return

    is_over = False

    def stop(*_: Any) -> None:
        # Too late to interrupt anything, if it rings while the clock is being stopped.
        if not is_over:
            raise _OverdueSignal

    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, stop)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
        is_over = True
    except _OverdueSignal:
        raise error from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            # Somebody else's alarm rings when it would have, or at once.
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - start)), interval)
