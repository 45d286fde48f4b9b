"""A progress bar on stderr for anything that takes long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Waiting:
    """One bar: `advance` it, with a word on what comes next."""

    def __init__(self, progress: Progress, total: int, words: str) -> None:
        self._progress = progress
        self._task = progress.add_task(words, total=total)

    def say(self, words: str) -> None:
        """What is being done now."""
        self._progress.update(self._task, description=words)

    def advance(self, steps: int = 1) -> None:
        """So many more are done."""
        self._progress.advance(self._task, steps)

    def arrive(self, steps: int) -> None:
        """So many are done by now."""
        self._progress.update(self._task, completed=steps)


@contextmanager
def waiting(total: int, words: str) -> Iterator[Waiting]:
    """A bar for as long as the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Waiting(progress, total, words)
