"""Batches read by worker processes, which may be killed at any time.

A batch depends on nothing but its key, so a killed worker costs time and nothing else.
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
"""Killed workers per epoch before the run stops: memory that keeps running out won't suffice."""


def read_batches(dataset: Dataset[Any], keys: Iterable[Any], *, num_workers: int) -> Iterator[Any]:
    """`dataset[key]` for every key, prefetched by `num_workers` processes; killed ones are restarted."""
    left, num_losses = deque(keys), 0
    # A single batch is not worth a process.
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
    """Whether a worker died; what a worker raises arrives as `Caught ... in DataLoader worker`."""
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker (pid")
    # A finished batch is fetched from the worker that made it; a dead one doesn't answer.
    return isinstance(error, EOFError | ConnectionError | FileNotFoundError) and not str(error).startswith(
        "Caught "
    )


def _tell_loss(error: Exception, num_losses: int) -> None:
    reason = reason_of(error, longest=120)
    if num_losses > MAX_LOSSES:
        raise WorkerLostError(
            f"data loading workers were killed {num_losses} times in one epoch, perhaps by the OOM killer; "
            f"last: {reason}. Free some memory, or use fewer --workers."
        ) from None
    log.warning(
        "a data loading worker was killed, perhaps by the OOM killer (%s); it is restarted at the same batch",
        reason,
    )


def _start_reading(dataset: Dataset[Any], keys: Sequence[Any], num_workers: int) -> Iterator[Any]:
    if num_workers == 0 or threading.current_thread() is not threading.main_thread():
        return _load(dataset, keys, num_workers)
    before = signal.getsignal(signal.SIGCHLD)
    found = _load(dataset, keys, num_workers)
    # torch's handler raises in the middle of a training step; without it, the loss shows when a batch is due.
    is_torch = getattr(before, "__module__", "").startswith("torch.")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None or is_torch else before)
    return found


def _load(dataset: Dataset[Any], keys: Sequence[Any], num_workers: int) -> Iterator[Any]:
    with warnings.catch_warnings():
        # The user chose the number of workers, even if there are fewer CPUs.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = DataLoader(dataset, batch_size=None, sampler=keys, num_workers=num_workers)  # type: ignore
        return iter(loader)
