"""The view that suits where a run is watched: a terminal, a notebook, or a file."""

from __future__ import annotations

from rich.console import Console

from trainonce.runs.report.live import Lines, LivePanel, View
from trainonce.runs.report.notebook import NotebookPanel, is_in_notebook


def choose_view(title: str) -> View:
    """A panel in a notebook or if stderr is a terminal, lines otherwise."""
    if is_in_notebook():
        return NotebookPanel(title)
    console = Console(stderr=True)
    return LivePanel(title, console) if console.is_terminal and not console.is_dumb_terminal else Lines()
