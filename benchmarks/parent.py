"""Children that don't outlive the command that started them: an orphan would go on writing to the cache."""

from __future__ import annotations

import os
import threading
import time

_POLL_SECONDS = 1.0


def end_with_parent() -> None:
    """Watch, in a thread, whether the parent is still there; end this process as soon as it is not."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
