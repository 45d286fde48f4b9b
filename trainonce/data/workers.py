"""Batches that other processes read.

Takes a data set whose items are whole batches and a number of processes, gives the batches in order.

An item depends on nothing but its key, so a reading process that is killed costs time and nothing else.
"""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset

from trainonce.errors import WorkerLostError
from trainonce.messages.plain_text import reason_of

log = logging.getLogger("trainonce")

MAX_LOSSES = 3
"""Killed processes in one pass over the data before the run stops.

Memory that is short again and again stays short.
"""


def read_batches(dataset: Dataset[Any], keys: Iterable[Any], *, num_workers: int) -> Iterator[Any]:
    """`dataset[key]` for every key, read ahead by `num_workers` processes.

    One that is killed is started again at the same key.
    """
    left, num_losses = deque(keys), 0
    # One batch is not worth a process.
    num_workers = num_workers if len(left) > 1 else 0
    while left:
        found = _start_reading(dataset, list(left), num_workers)
        while left:
            try:
                batch = next(found)
            except (RuntimeError, OSError, EOFError) as error:
                if num_workers == 0 or not _is_loss(error):
                    raise
                num_losses += 1
                _tell_loss(error, num_losses)
                break
            left.popleft()
            yield batch


def _is_loss(error: Exception) -> bool:
    """Whether the process is gone, and not something that it has raised.

    That arrives as `Caught ... in DataLoader worker`.
    """
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker (pid")
    # The handle of a finished batch is asked from the process that made it; what is gone doesn't answer.
    return isinstance(error, EOFError | ConnectionError | FileNotFoundError) and not str(error).startswith(
        "Caught "
    )


def _tell_loss(error: Exception, num_losses: int) -> None:
    reason = reason_of(error, longest=120)
    if num_losses > MAX_LOSSES:
        raise WorkerLostError(
            f"processes that read the data were killed {num_losses} times in one pass, last: {reason}. "
            f"Give them more memory, or read with fewer --workers."
        ) from None
    log.warning("a process that reads the data was killed (%s); reading goes on at the same sample", reason)


def _start_reading(dataset: Dataset[Any], keys: Sequence[Any], num_workers: int) -> Iterator[Any]:
    if num_workers == 0 or threading.current_thread() is not threading.main_thread():
        return _load(dataset, keys, num_workers)
    before = signal.getsignal(signal.SIGCHLD)
    found = _load(dataset, keys, num_workers)
    # torch answers this signal by an error wherever the training step happens to be; without that, the loss
    # shows when a batch is due.
    is_torch = getattr(before, "__module__", "").startswith("torch.")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None or is_torch else before)
    return found


def _load(dataset: Dataset[Any], keys: Sequence[Any], num_workers: int) -> Iterator[Any]:
    with warnings.catch_warnings():
        # As many processes as were asked for, also where there are fewer CPUs.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        return iter(DataLoader(dataset, batch_size=None, sampler=keys, num_workers=num_workers))  # type: ignore[arg-type]
