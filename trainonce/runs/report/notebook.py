"""Progress of a run in a notebook: a panel that is redrawn in place, and lines above it."""

from __future__ import annotations

import importlib
import io
import sys
import time
from typing import Any

from rich.console import Console

from trainonce.messages.plain_text import printable
from trainonce.runs.report.live import Moment, draw

SECONDS_BETWEEN_PANELS = 1.0
"""Every panel is a message to the browser, and stays in its history."""

_WIDTH = 100
_FORMAT = '<pre style="line-height: 1.2; font-family: monospace">{code}</pre>'


def is_in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter; IPython on a terminal is a terminal."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookPanel:
    """The panel of the terminal as HTML, in the output of the cell that trains."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._display: Any = importlib.import_module("IPython.display")
        self._handle: Any = None
        self._last: float | None = None
        self._latest: Moment | None = None

    def show(self, moment: Moment) -> None:
        """Draw it, if the last one is old enough or this is the end."""
        now, self._latest = time.monotonic(), moment
        is_due = self._last is None or now - self._last >= SECONDS_BETWEEN_PANELS
        if is_due or moment.step == moment.total_steps:
            self._last = now
            self._draw()

    def say(self, line: str) -> None:
        """A line in the cell's output."""
        print(printable(line), flush=True)

    def close(self) -> None:
        """Draw the last moment, which may not have been due."""
        if self._latest is not None:
            self._draw()

    def _draw(self) -> None:
        assert self._latest is not None
        page = self._display.HTML(as_html(self._latest, self._title))
        if self._handle is None:
            self._handle = self._display.display(page, display_id=True)
        else:
            self._handle.update(page)


def as_html(moment: Moment, title: str) -> str:
    """The panel of a moment as HTML, without scripts and styles of its own."""
    # In a notebook, rich would display what it prints by itself.
    console = Console(record=True, file=io.StringIO(), width=_WIDTH, force_terminal=True, force_jupyter=False)
    console.print(draw(moment, title))
    return console.export_html(inline_styles=True, code_format=_FORMAT)
