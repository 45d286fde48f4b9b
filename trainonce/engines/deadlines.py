"""A limit of seconds for work that can't be told to stop, such as compiling a model."""

from __future__ import annotations

import signal
import threading
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

    def stop(*_: Any) -> None:
        raise _OverdueSignal

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _OverdueSignal:
        raise error from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
